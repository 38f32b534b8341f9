"""What the stand-in engine is made of; nothing here exists under this name in the real SGLang."""

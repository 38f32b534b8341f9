"""The engine room: SGLang's options, environment and log. Text in, values out; nothing is started or asked here."""

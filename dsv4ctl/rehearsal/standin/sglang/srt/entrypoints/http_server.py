"""Where the real engine has its endpoints. Whoever wants to know whether a build has /ready looks for its name here."""

READY = "/ready"

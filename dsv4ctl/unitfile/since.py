"""Which directive came with which systemd, so that a unit for an older host is rendered without it."""

from dsv4ctl.unitfile.parse import logical_lines

OLDEST, NEWEST = 249, 257

# From systemd's NEWS; 200 stands for 200 and older. Keys of [X-...] sections are ours: systemd skips those sections.
SINCE = {
    **dict.fromkeys(
        (
            *("Description", "Documentation", "Wants", "After", "PartOf", "RequiresMountsFor", "WantedBy"),
            *("Type", "NotifyAccess", "ExecStart", "Environment", "User", "WorkingDirectory", "Slice"),
            *("KillMode", "KillSignal", "TimeoutStartSec", "TimeoutStopSec", "Restart", "RestartSec"),
            *("SuccessExitStatus", "RestartPreventExitStatus", "LimitMEMLOCK", "LimitNOFILE", "LimitCORE", "UMask"),
            *("PrivateTmp", "CapabilityBoundingSet", "NoNewPrivileges", "SystemCallFilter", "SyslogIdentifier"),
            *("DevicePolicy", "DeviceAllow", "CPUAffinity"),
        ),
        200,
    ),
    "SystemCallArchitectures": 209,
    "SystemCallErrorNumber": 209,
    "RuntimeDirectory": 211,
    "RestrictAddressFamilies": 211,
    "ProtectHome": 214,
    "ProtectSystem": 214,
    "RestartForceExitStatus": 215,
    "TasksMax": 227,
    "StartLimitIntervalSec": 230,
    "StartLimitBurst": 230,
    "ReadWritePaths": 231,
    "RestrictRealtime": 231,
    "ProtectControlGroups": 232,
    "ProtectKernelModules": 232,
    "ProtectKernelTunables": 232,
    "BindPaths": 233,
    "BindReadOnlyPaths": 233,
    "RestrictNamespaces": 233,
    "CacheDirectory": 235,
    "KeyringMode": 235,
    "LockPersonality": 235,
    "RuntimeDirectoryPreserve": 235,
    "StateDirectory": 235,
    "PrivateMounts": 239,
    "LogRateLimitIntervalSec": 240,
    "LogRateLimitBurst": 240,
    "ProtectHostname": 242,
    "RestrictSUIDSGID": 242,
    "NUMAMask": 243,
    "NUMAPolicy": 243,
    "OOMPolicy": 243,
    "ProtectKernelLogs": 244,
    "ProtectClock": 245,
    "LoadCredential": 247,
    "ExecPaths": 248,
    "RestartMaxDelaySec": 254,
    "RestartSteps": 254,
}


def only_known(text: str, version: int) -> str:
    """The unit without directives that came after `version`: an older systemd would complain of each at every reload.

    A directive that SINCE does not list is a slip in the template: KeyError.
    """
    kept: list[str] = []
    section = ""
    for lines in logical_lines(text):
        first = lines[0]
        if first.startswith("["):
            section = first
        directive = first.partition("=")[0]
        is_assignment = "=" in first and not first.startswith(("#", ";")) and not section.startswith("[X-")
        if not is_assignment or SINCE[directive] <= version:
            kept.extend(lines)
    return "\n".join(kept)

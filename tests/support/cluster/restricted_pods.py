"""What Kubernetes' Pod Security says of a pod."""

from __future__ import annotations

from logpipeline_operator.children import Manifest


def restricted_faults(pod: Manifest) -> list[str]:
    """What Pod Security `restricted` would refuse in the specification of a *pod*."""
    kinds = {"configMap", "emptyDir", "projected", "secret", "persistentVolumeClaim"}
    faults = [f"volume {v['name']}" for v in pod["volumes"] if not (v.keys() - {"name"} <= kinds)]
    faults += [name for name in ("hostNetwork", "hostPID", "hostIPC") if pod.get(name)]
    for container in [*pod["containers"], *pod.get("initContainers", [])]:
        own = {**pod["securityContext"], **container["securityContext"]}
        checks = {
            "privilege escalation": own.get("allowPrivilegeEscalation") is False,
            "capabilities": own.get("capabilities") == {"drop": ["ALL"]},
            "root": own.get("runAsNonRoot") is True and own.get("runAsUser") != 0,
            "seccomp": own.get("seccompProfile") == {"type": "RuntimeDefault"},
            "privileged": not own.get("privileged"),
            "host port": not any("hostPort" in port for port in container.get("ports", [])),
        }
        faults += [name for name, is_kept in checks.items() if not is_kept]
    return faults

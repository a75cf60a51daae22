#!/usr/bin/env python3
"""Questions about docs/kubernetes/*.yaml, for tests.

    manifests.py check FILE…          what no cluster would take, or would take and not do
    manifests.py kubectl FILE…        kubectl's own opinion: create --dry-run=client, and that it
                                      knows every field
    manifests.py script FILE NAME     what the container NAME runs
    manifests.py config FILE          the config.yaml in the ConfigMap
"""
import http.server
import json
import os
import subprocess
import sys
import tempfile
import threading

import yaml

RESOURCES = {  # what a cluster says that it has
    "v1": {"Namespace": ("namespaces", False), "Secret": ("secrets", True),
           "ConfigMap": ("configmaps", True), "Pod": ("pods", True)},
    "apps/v1": {"DaemonSet": ("daemonsets", True)},
}


def documents(path):
    with open(path) as f:
        return [d for d in yaml.safe_load_all(f) if d]


def pod_of(doc):
    if doc["kind"] == "Pod":
        return doc["spec"]
    return doc["spec"]["template"]["spec"] if doc["kind"] == "DaemonSet" else None


# ---- by hand ----

def need(condition, words):
    if not condition:
        raise SystemExit(f"manifests: {words}")


def check_container(where, pod, c):
    volumes = {v["name"]: v for v in pod.get("volumes", [])}
    need(c.get("name") and c.get("image"), f"{where}: a container without a name or image")
    for m in c.get("volumeMounts", []):
        need(m["name"] in volumes, f"{where}: no volume {m['name']}")
        need(m["mountPath"].startswith("/"), f"{where}: mountPath {m['mountPath']}")
        need(m.get("mountPropagation") in (None, "HostToContainer", "Bidirectional"), where)
        if m.get("mountPropagation") == "Bidirectional":
            need(c.get("securityContext", {}).get("privileged"),
                 f"{where}: Bidirectional is for privileged containers only")
    for v in volumes.values():
        need(len(v) == 2, f"{where}: the volume {v['name']} has not one source")


def check(paths):
    have = {(d["kind"], d["metadata"]["name"]) for p in paths for d in documents(p)}
    for path in paths:
        for doc in documents(path):
            where = f"{os.path.basename(path)}: {doc['kind']} {doc['metadata']['name']}"
            need(doc["kind"] in RESOURCES[doc["apiVersion"]], where)
            pod = pod_of(doc)
            if not pod:
                continue
            for c in pod["containers"]:
                check_container(where, pod, c)
                for e in c.get("env", []):
                    ref = e["valueFrom"]["secretKeyRef"]
                    need(("Secret", ref["name"]) in have, f"{where}: no Secret {ref['name']}")
            for v in pod["volumes"]:
                if "configMap" in v:
                    need(("ConfigMap", v["configMap"]["name"]) in have, f"{where}: no ConfigMap")
            if doc["kind"] == "DaemonSet":
                labels = doc["spec"]["template"]["metadata"]["labels"]
                for key, value in doc["spec"]["selector"]["matchLabels"].items():
                    need(labels.get(key) == value, f"{where}: the selector matches nothing")


# ---- by kubectl ----

class Cluster(http.server.BaseHTTPRequestHandler):
    """So much of an API server as kubectl has to see before it looks at a manifest."""

    def log_message(self, *args):
        pass

    def do_GET(self):
        path = self.path.split("?")[0]
        if path == "/api":
            value = {"kind": "APIVersions", "versions": ["v1"]}
        elif path == "/apis":
            version = {"groupVersion": "apps/v1", "version": "v1"}
            value = {"kind": "APIGroupList", "apiVersion": "v1", "groups": [
                {"name": "apps", "versions": [version], "preferredVersion": version}]}
        elif path in ("/api/v1", "/apis/apps/v1"):
            group = "v1" if path == "/api/v1" else "apps/v1"
            value = {"kind": "APIResourceList", "groupVersion": group, "resources": [
                {"name": plural, "singularName": "", "namespaced": namespaced, "kind": kind,
                 "verbs": ["create", "get", "list"]}
                for kind, (plural, namespaced) in RESOURCES[group].items()]}
        else:
            self.send_error(404)
            return
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def lost(ours, theirs, where):
    """Fields that kubectl dropped, as it does with what its types do not have."""
    if isinstance(ours, dict):
        for key, value in ours.items():
            if not isinstance(theirs, dict) or key not in theirs:
                yield f"{where}.{key}"
            else:
                yield from lost(value, theirs[key], f"{where}.{key}")
    elif isinstance(ours, list):
        for i, value in enumerate(ours):
            yield from lost(value, theirs[i] if i < len(theirs) else None, f"{where}[{i}]")
    elif str(ours) != str(theirs):
        yield f"{where}: {theirs!r} instead of {ours!r}"


def run(arguments, **more):
    done = subprocess.run(["kubectl"] + arguments, stdout=subprocess.PIPE, timeout=60, **more)
    need(done.returncode == 0, f"kubectl {' '.join(arguments)} fails")
    return done.stdout


def kubectl(paths):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Cluster)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as home:
        env = dict(os.environ, HOME=home, KUBECONFIG="/dev/null", no_proxy="*")
        address = f"http://127.0.0.1:{server.server_address[1]}"
        for path in paths:
            print(run(["create", "--dry-run=client", "--validate=false", "--server", address,
                       "-f", path], env=env).decode(), end="")
            for doc in documents(path):
                if not pod_of(doc):
                    continue
                # This decodes into the types of the API, and needs no server.
                text = run(["set", "env", "--local", "-f", "-", "X=y", "-o", "json"], env=env,
                           input=json.dumps(doc).encode())
                missing = list(lost(doc, json.loads(text), doc["kind"]))
                need(not missing, f"{path}: unknown to kubectl: {', '.join(missing)}")
    server.shutdown()


def main():
    what, paths = sys.argv[1], sys.argv[2:]
    if what == "check":
        check(paths)
    elif what == "kubectl":
        kubectl(paths)
    elif what == "script":
        containers = [c for d in documents(paths[0]) if pod_of(d) for c in pod_of(d)["containers"]]
        print([c for c in containers if c["name"] == paths[1]][0]["args"][0])
    elif what == "config":
        print([d for d in documents(paths[0]) if d["kind"] == "ConfigMap"][0]["data"]["config.yaml"])


if __name__ == "__main__":
    main()

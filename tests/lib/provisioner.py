#!/usr/bin/env python3
"""A small server of deer-flow's provisioner API, with real sandboxes behind it.

Every route, status and error of docker/provisioner/app.py; a "pod" is a process
of threadfs-sandboxd, its "service" the port or address where that listens. The
cluster is what is made up: pods are restarted when they die, as Kubernetes does,
and what happens to pods there can be ordered here, by routes that a provisioner
does not have:

    POST /test/pods/ID {"do": "kill"}      the container dies (and is restarted)
    POST /test/pods/ID {"do": "delete"}    the pod goes, its service stays
    POST /test/pods/ID {"do": "PHASE"}     so says its status from now on
    POST /test/say {"method", "path", "status", "body", "count", "delay"}
                                           the next such requests are answered so
    GET  /test/requests                    what was asked so far

The key is in PROVISIONER_API_KEY; as there, without one nobody gets in. The first
line on stdout is "ready on URL". Ends with SIGTERM, and its pods with it.
"""
import argparse
import http.server
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time

KEY = os.environ.pop("PROVISIONER_API_KEY", "")
THREAD = re.compile(r"[A-Za-z0-9_-]{1,64}")
USER = re.compile(r"[A-Za-z0-9_\-]+")
EXTRA_MOUNT_PATHS = {
    "/mnt/acp-workspace", "/mnt/skills/custom", "/mnt/skills/integrations",
    "/mnt/integrations/lark-cli/config", "/mnt/integrations/lark-cli/config/locks",
    "/mnt/integrations/lark-cli/data", "/mnt/integrations/lark-cli/runtime",
}


class Refused(Exception):
    def __init__(self, status, detail):
        super().__init__(detail)
        self.status = status
        self.detail = detail


class Pod:
    """A process that is restarted until it is no longer wanted."""

    def __init__(self, cluster, sandbox_id, thread_id, user_id, address, port):
        args = cluster.args
        self.data = os.path.join(args.data, "deer-flow", "users", user_id, "threads", thread_id,
                                 "user-data")
        os.makedirs(self.data, exist_ok=True)
        os.chmod(self.data, 0o777)
        self.command = [args.sandboxd, "--listen", f"{address}:{port}", "--data", self.data,
                        "--dialect", args.dialect]
        self.log = open(os.path.join(args.data, sandbox_id + ".log"), "ab")
        self.phase = None  # ordered by a test
        self.ready = False
        self.wanted = True
        self.spawn()
        threading.Thread(target=self.look_after, daemon=True).start()

    def spawn(self):
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, stderr=self.log,
                                        stdin=subprocess.DEVNULL)

    def look_after(self):
        while True:
            process = self.process
            for line in process.stdout:
                self.ready |= b": ready on " in line
            process.wait()
            self.ready = False
            if not self.wanted:
                return
            time.sleep(0.05)
            self.spawn()

    def status(self):
        return self.phase or ("Running" if self.ready else "Pending")

    def end(self):
        self.wanted = False
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


class Given:
    """One that is not the cluster's: it is where it is, and stays."""

    def status(self):
        return "Running"

    def end(self):
        pass


class Cluster:
    def __init__(self, args):
        self.args = args
        self.lock = threading.Lock()
        self.pods = {}
        self.services = {}  # id -> URL
        self.addresses = 0
        self.rules = []
        self.requests = []

    # ---- what a cluster does ----

    def service_address(self, sandbox_id):
        """Where the pod is to listen, and what the service's URL is."""
        args = self.args
        if args.service == "ClusterIP":
            self.addresses += 1
            ip = args.cluster_net + str(self.addresses)
            host = f"sandbox-{sandbox_id}-svc.deer-flow.svc.cluster.local"
            with open(args.hosts, "a") as hosts:  # the cluster's DNS
                hosts.write(f"{ip} {host}\n")
            return ip, 8080, f"http://{host}:8080"
        with socket.socket() as s:
            s.bind((args.node_bind, 0))
            port = s.getsockname()[1]
        return args.node_bind, port, f"http://{args.node_host}:{port}"

    def phase(self, sandbox_id):
        pod = self.pods.get(sandbox_id)
        return pod.status() if pod else "NotFound"

    def describe(self, sandbox_id):
        return {"sandbox_id": sandbox_id, "sandbox_url": self.services[sandbox_id],
                "status": self.phase(sandbox_id)}

    # ---- the routes ----

    def create(self, body):
        request = check_create(body)
        sandbox_id = request["sandbox_id"]
        if sandbox_id not in self.services:
            # As the service is missing, a pod of that name is left as it is.
            mounts = check_mounts(request["extra_mounts"], self.args.host_base)
            name, _, url = self.args.given.partition("=")
            if name and (request["thread_id"] or "").startswith(name):
                self.pods[sandbox_id] = Given()
            else:
                address, port, url = self.service_address(sandbox_id)
            if sandbox_id not in self.pods:
                self.pods[sandbox_id] = Pod(self, sandbox_id, request["thread_id"] or sandbox_id,
                                            request["user_id"], address, port)
                self.pods[sandbox_id].mounts = mounts
            self.services[sandbox_id] = url
        return self.describe(sandbox_id)

    def delete(self, sandbox_id):
        self.services.pop(sandbox_id, None)
        pod = self.pods.pop(sandbox_id, None)
        if pod:  # not waited for
            threading.Thread(target=pod.end).start()
        return {"ok": True, "sandbox_id": sandbox_id}

    def get(self, sandbox_id):
        if sandbox_id not in self.services:
            raise Refused(404, f"Sandbox '{sandbox_id}' not found")
        return self.describe(sandbox_id)

    def list(self):
        items = [self.describe(i) for i in self.services]
        return {"sandboxes": items, "count": len(items)}

    # ---- what tests order ----

    def order(self, sandbox_id, what):
        pod = self.pods[sandbox_id]
        if what == "kill":
            pod.process.kill()
        elif what == "delete":
            del self.pods[sandbox_id]
            pod.end()
        else:
            pod.phase = what
            if what in ("Failed", "Succeeded"):
                pod.end()

    def end(self):
        with self.lock:
            pods = list(self.pods.values())
            self.pods.clear()
        for pod in pods:
            pod.end()


def bad_field(name, message):
    return Refused(422, [{"type": "value_error", "loc": ["body", name], "msg": message}])


def check_create(body):
    request = {"thread_id": None, "user_id": "default", "extra_mounts": []}
    try:
        request.update(json.loads(body))
    except (ValueError, TypeError):
        raise bad_field("", "Input should be a valid dictionary")
    if not isinstance(request.get("sandbox_id"), str):
        raise bad_field("sandbox_id", "Field required")
    thread, user = request["thread_id"], request["user_id"]
    if thread is not None and not (isinstance(thread, str) and THREAD.fullmatch(thread)):
        raise bad_field("thread_id", "String should match pattern '^[A-Za-z0-9_-]{1,64}$'")
    if not (isinstance(user, str) and USER.fullmatch(user)):
        raise bad_field("user_id", "String should match pattern '^[A-Za-z0-9_\\-]+$'")
    return request


def check_mounts(mounts, base):
    seen = set()
    if len(mounts) > 10:
        raise Refused(400, "Too many extra mounts; max is 10")
    for m in mounts:
        host, inside = os.path.normpath(m["host_path"]), os.path.normpath(m["container_path"])
        if not os.path.isabs(host):
            raise Refused(400, f"Extra mount host path must be absolute: {m['host_path']}")
        if os.path.commonpath([host, base]) != base:
            raise Refused(400, f"Extra mount host path is outside DeerFlow state: {host}")
        if inside not in EXTRA_MOUNT_PATHS:
            raise Refused(400, f"Unsupported extra mount path: {inside}")
        if inside in seen:
            raise Refused(400, f"Duplicate extra mount path: {inside}")
        seen.add(inside)
    return mounts


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    cluster = None

    def log_message(self, *args):
        pass

    def answer(self, status, value, content_type="application/json"):
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def rule(self):
        """The answer that a test ordered for this request, or None."""
        for rule in self.cluster.rules:
            if rule["method"] == self.command and self.path.startswith(rule["path"]):
                rule["count"] -= 1
                if rule["count"] == 0:
                    self.cluster.rules.remove(rule)
                return rule
        return None

    def test_route(self, parts, body):
        cluster = self.cluster
        if parts == ["requests"]:
            return cluster.requests
        if parts == ["say"]:
            rule = {"status": 0, "body": "", "count": 1, "delay": 0, "method": "GET"}
            rule.update(json.loads(body))
            cluster.rules.append(rule)
        elif parts[0] == "pods":
            cluster.order(parts[1], json.loads(body)["do"])
        return {"ok": True}

    def route(self, body):
        cluster = self.cluster
        parts = self.path.strip("/").split("/")
        if parts[0] == "test":
            return self.test_route(parts[1:], body)
        if self.command == "GET" and parts == ["health"]:
            return {"status": "ok"}
        if parts == ["api", "capabilities"] and self.command == "GET":
            return {"lark_cli_init_image": False, "lark_cli_broker_image": False}
        if parts == ["api", "sandboxes"]:
            if self.command == "POST":
                return cluster.create(body)
            if self.command == "GET":
                return cluster.list()
            raise Refused(405, "Method Not Allowed")
        if parts[:2] == ["api", "sandboxes"] and len(parts) == 3:
            if self.command == "GET":
                return cluster.get(parts[2])
            if self.command == "DELETE":
                return cluster.delete(parts[2])
            raise Refused(405, "Method Not Allowed")
        raise Refused(404, "Not Found")

    def handle_any(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        cluster = self.cluster
        if not self.path.startswith("/test/"):
            with cluster.lock:
                cluster.requests.append({
                    "method": self.command, "path": self.path, "body": body.decode("utf-8", "replace"),
                    "key": self.headers.get("X-API-Key"), "host": self.headers.get("Host")})
                rule = self.rule()
            if rule:
                time.sleep(rule["delay"])
                if rule["status"]:
                    said = rule["body"]
                    self.answer(rule["status"], said.encode() if isinstance(said, str) else said)
                    return
        if self.path.startswith("/api/") and (not KEY or self.headers.get("X-API-Key") != KEY):
            self.answer(401, b"Unauthorized", "text/plain")
            return
        try:
            with cluster.lock:
                value = self.route(body)
            self.answer(200, value)
        except Refused as refused:
            self.answer(refused.status, {"detail": refused.detail})

    do_GET = do_POST = do_DELETE = do_PUT = handle_any


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request, client_address):
        if not isinstance(sys.exc_info()[1], (BrokenPipeError, ConnectionResetError)):
            super().handle_error(request, client_address)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--listen", default="127.0.0.1:0")
    p.add_argument("--data", required=True, help="where pods keep /mnt/user-data")
    p.add_argument("--sandboxd", required=True)
    p.add_argument("--dialect", default="aiod")
    p.add_argument("--service", choices=["NodePort", "ClusterIP"], default="NodePort")
    p.add_argument("--node-host", default="127.0.0.1", help="NODE_HOST")
    p.add_argument("--node-bind", default="127.0.0.1", help="where pods listen")
    p.add_argument("--cluster-net", default="127.0.1.", help="how ClusterIPs begin")
    p.add_argument("--hosts", help="file of the cluster's names")
    p.add_argument("--given", default="", metavar="NAME=URL",
                   help="where the sandbox of all threads is whose names begin so")
    p.add_argument("--host-base", default="/.deer-flow", help="DEER_FLOW_HOST_BASE_DIR")
    args = p.parse_args()
    Handler.cluster = Cluster(args)
    host, port = args.listen.rsplit(":", 1)
    server = Server((host, int(port)), Handler)
    for sig in (signal.SIGTERM, signal.SIGINT):
        signal.signal(sig, lambda *_: threading.Thread(target=server.shutdown).start())
    print(f"ready on http://{host}:{server.server_address[1]}", flush=True)
    try:
        server.serve_forever(0.05)
    finally:
        Handler.cluster.end()


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""A registry of container images for tests: serves one image out of an OCI layout (podman save
--format oci-dir), slowly on order.

	registry.py DIR HOST:PORT [SECONDS]

SECONDS is how long each large blob takes. Prints "ready" when it answers.
"""
import http.server
import json
import os
import sys
import time

DIR, ADDRESS = sys.argv[1], sys.argv[2]
SECONDS = float(sys.argv[3]) if len(sys.argv) > 3 else 0.0
PIECES = 20


def manifest():
	with open(os.path.join(DIR, "index.json"), encoding="utf-8") as f:
		return json.load(f)["manifests"][0]["digest"]


class Handler(http.server.BaseHTTPRequestHandler):
	protocol_version = "HTTP/1.1"

	def log_message(self, *args):
		pass

	def reply(self, status, kind, body, digest=None):
		self.send_response(status)
		self.send_header("Content-Type", kind)
		self.send_header("Content-Length", str(len(body)))
		if digest:
			self.send_header("Docker-Content-Digest", digest)
		self.end_headers()
		if self.command == "HEAD":
			return
		size = len(body) // PIECES + 1
		slow = SECONDS if len(body) > 1000000 else 0
		for at in range(0, len(body), size):
			self.wfile.write(body[at : at + size])
			self.wfile.flush()
			time.sleep(slow / PIECES)

	def do_GET(self):
		parts = self.path.strip("/").split("/")
		if parts == ["v2"]:
			self.reply(200, "application/json", b"{}")
			return
		what, digest = parts[-2], parts[-1]
		kind = "application/octet-stream"
		if what == "manifests":
			kind = "application/vnd.oci.image.manifest.v1+json"
			if not digest.startswith("sha256:"):
				digest = manifest()
		try:
			with open(os.path.join(DIR, "blobs", *digest.split(":")), "rb") as f:
				self.reply(200, kind, f.read(), digest)
		except OSError:
			self.reply(404, "application/json", b'{"errors":[{"code":"MANIFEST_UNKNOWN"}]}')

	do_HEAD = do_GET


host, port = ADDRESS.rsplit(":", 1)
server = http.server.ThreadingHTTPServer((host, int(port)), Handler)
print("ready", flush=True)
server.serve_forever()

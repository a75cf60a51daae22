#!/usr/bin/env bats
# The embedded sandbox as a prison: what a program that wants out would try.

load ../lib/sandboxd

ESCAPE=$BATS_TEST_DIRNAME/../lib/escape.py

setup() {
	sandboxd_setup
}

teardown() {
	sandboxd_teardown
}

# escape WHAT [ARGS]: what the attempts came to, in $STDOUT.
escape() {
	cp "$ESCAPE" "$DATA/escape.py"
	chmod 0644 "$DATA/escape.py"
	in_sandbox "python3 -B /mnt/user-data/escape.py $*"
	rm -f "$DATA/escape.py"
	echo "$STDOUT"
}

# answers 'NAME RESULT'…: the attempts of those names came to just that.
answers() {
	local want

	for want; do
		grep -qx -- "$want" <<<"$STDOUT" || {
			echo "instead of '$want': $(grep -- "^${want%% *} " <<<"$STDOUT")" >&2
			return 1
		}
	done
}

kernel_body() {
	local name

	escape kernel
	for name in mount umount2 pivot_root setns keyctl add_key request_key bpf perf_event_open userfaultfd \
		kexec_load kexec_file_load init_module finit_module delete_module open_by_handle_at fsopen open_tree \
		move_mount fsmount mount_setattr syslog reboot swapon acct settimeofday fanotify_init quotactl \
		unshare-{user,mnt,pid,net,ipc,uts,cgroup,time} clone-{user,mnt,pid,net,ipc,uts,cgroup}; do
		answers "$name EPERM"
	done
	answers 'io_uring_setup ENOSYS' 'clone3 ENOSYS' 'openat2 ENOSYS'
	for name in 40 38 17 31 29 30 21; do
		answers "socket-$name EAFNOSUPPORT"
	done
	for name in 2 10 16 30 40; do
		answers "socketpair-$name EAFNOSUPPORT"
	done
	answers 'AF_UNIX got through' 'socketpair-1 got through' 'AF_INET got through' 'AF_NETLINK got through'
	refused 'unshare -Ur true'
	refused 'unshare -m true'
	refused 'keyctl show || python3 -c "raise SystemExit(1)"'
	in_sandbox 'grep ^Seccomp: /proc/self/status /proc/1/status | cut -f2'
	[ "$STDOUT" = $'2\n2' ]
}

@test "keys, bpf, perf, userfaultfd, kexec, modules, mounts, namespaces, io_uring and vsock are refused" {
	each_user kernel_body
}

terminal_body() {
	escape terminal
	answers 'TIOCSTI EPERM' 'TIOCSTI-wide EPERM' 'TIOCLINUX EPERM' 'TIOCLINUX-wide EPERM' 'size got through'
}

@test "nothing is typed into a terminal, nor taken from a console's clipboard" {
	each_user terminal_body
}

server_body() {
	escape server
	answers 'ptrace-attach EPERM' 'ptrace-seize EPERM' 'process_vm_readv EPERM' 'pidfd_getfd EPERM'
	refute grep 'got through' <<<"$STDOUT"
	[ "$(grep -c '^prlimit EPERM' <<<"$STDOUT")" -ge 1 ]
	# it lives, and so do limits of one's own
	in_sandbox 'ulimit -n 64; ulimit -n'
	[ "$STDOUT" = 64 ]
}

@test "PID 1 cannot be traced, read, robbed or limited" {
	each_user server_body
}

files_body() {
	local name call calls=(fchmod fchmodat mknodat openat openat-tmpfile)

	[ "$(uname -m)" != x86_64 ] || calls+=(chmod mknod creat open open-tmpfile)
	for name in /mnt/user-data/outputs /tmp; do
		escape files "$name"
		answers 'chmod-setuid EPERM' 'chmod-setgid EPERM' 'fchmod-setuid EPERM' 'open-setuid EPERM' \
			'mknod-setuid EPERM' 'tmpfile-setuid EPERM' 'mknod-disk EPERM' 'mknod-mem EPERM' \
			'capability EPERM' 'chmod got through' 'fifo got through'
		for call in "${calls[@]}"; do
			answers "call-$call EPERM"
		done
		refute grep -E '^(fchmodat2-setuid|chown-root) got through' <<<"$STDOUT"
	done
	# nor by asking the server, which writes for it
	api POST /v1/file/write '{"file":"/mnt/user-data/outputs/w","content":"x"}'
	[ "$HTTP" = 200 ]
	bash_exec 'install -m 4755 /mnt/user-data/outputs/w /mnt/user-data/outputs/s; cp /usr/bin/env /mnt/user-data/outputs/; chmod u+s /mnt/user-data/outputs/env' || true
	[ -z "$(find "$DATA" -perm /6000)" ]
	refused 'cat /dev/sda || cat /dev/vda || cat /dev/mem || cat /dev/kmsg || cat /dev/fuse'
}

@test "no setuid files, device nodes or file capabilities come out of it" {
	each_user files_body
}

tools_body() {
	bash_exec 'python3 -c "
import subprocess, threading, multiprocessing, socket, tempfile, asyncio
assert subprocess.run([\"true\"]).returncode == 0
t = threading.Thread(target=lambda: None); t.start(); t.join()
a, b = socket.socketpair(); s = socket.create_server((\"127.0.0.1\", 0))
c = socket.create_connection(s.getsockname()); c.close()
async def go(): return await (await asyncio.create_subprocess_exec(\"true\")).wait()
assert asyncio.run(go()) == 0
if __name__ == \"__main__\":
    with multiprocessing.get_context(\"fork\").Pool(2) as p: assert p.map(abs, [-1, -2]) == [1, 2]
"'
	bash_exec 'cd /tmp && rm -rf r && git init -q r && cd r && echo x >f && git add f &&
		git -c user.name=a -c user.email=a@b commit -qm m && git log --oneline | wc -l'
	[ "$STDOUT" = 1 ]
	bash_exec 'cd /tmp && tar -cf t.tar r && rm -r r && tar -xf t.tar && mktemp >/dev/null && umask 022 && mkdir -m 1777 d'
	if command -v node >/dev/null; then
		bash_exec 'node -e "require(\"fs\").promises.readFile(\"/etc/passwd\").then(() => require(\"child_process\").execSync(\"true\")).then(() => console.log(\"ok\"))"'
		[ "$STDOUT" = ok ]
	fi
	if command -v gcc >/dev/null; then
		bash_exec 'cd /tmp && echo "int main(void){return 7;}" >a.c && gcc -pipe a.c -o a && ./a' || [ $? = 7 ]
	fi
	# processes of one's own can be traced
	if command -v strace >/dev/null; then
		bash_exec 'strace -o /tmp/trace true && grep -q execve /tmp/trace'
	fi
}

@test "ordinary tools do not notice the filter" {
	each_user tools_body
}

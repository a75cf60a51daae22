# shellcheck shell=bash
#
# A machine of a test's own, whose first process is systemd: this machine's programs with threadfs
# installed beside them, and everything else (processes, mounts, network, devices, cgroups, /etc,
# /var) its own and in memory. Its end takes all of it along.
#
#	load ../lib/machine
#	setup_file()    { machine_prepare; …; machine_boot; }
#	teardown_file() { machine_off; }
#	@test "…"       { machine systemctl start …; }
#
# There is a user `ann` (1000). Those of sandboxd.bash are here, too (wait_until, refute, …).
#
# Environment: THREADFS, the program in the build directory that is installed.
#
# Variables set here:
#	MACHINE      its directory. etc: what is in its /etc at its start; journal: its log, which
#	             journalctl -D reads; install: what was installed, from / on
#	MACHINE_PID  systemd, as it is called outside

# shellcheck source=tests/lib/sandboxd.bash
. "${BASH_SOURCE[0]%/*}/sandboxd.bash"

MACHINE_PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin

# machine_prepare: makes $MACHINE, for the caller to add to its etc. Skips where there can be no machine.
machine_prepare() {
	local program=${THREADFS:-$SANDBOXD_ROOT/build/threadfs}

	[ "$(id -u)" = 0 ] || skip "only root can boot a machine"
	[ -x /lib/systemd/systemd ] || skip "systemd is not installed"
	MACHINE=$(mktemp -d "${TMPDIR:-/tmp}/tfs-machine.XXXXXX")
	MACHINE_PID=
	export MACHINE MACHINE_PID MACHINE_PATH
	chmod 0755 "$MACHINE"
	mkdir -p "$MACHINE"/{root,install/usr,journal,etc/systemd/system}
	machine_possible_ 2>"$MACHINE/log" ||
		skip "the kernel gives no machine here: $(tail -n 1 "$MACHINE/log")"
	DESTDIR=$MACHINE/install meson install -C "${program%/*}" --no-rebuild --quiet >"$MACHINE/log" 2>&1 ||
		{ cat "$MACHINE/log" >&2; return 1; }
	# The only place that mount(8) looks into, whatever the prefix is.
	mkdir -p "$MACHINE/install/usr/sbin"
	[ -L "$MACHINE/install/usr/sbin/mount.threadfs" ] ||
		cp -P "$(find "$MACHINE/install" -name mount.threadfs -type l)" "$MACHINE/install/usr/sbin/"
	machine_etc_
	machine_units_
}

# Everything that a kernel may refuse to root in a container.
machine_possible_() {
	# shellcheck disable=SC2016
	unshare --mount --propagation private --pid --fork --net --uts --ipc --cgroup bash -euc '
		cd "$MACHINE"
		mount -t cgroup2 cgroup2 root
		mkdir "root/${MACHINE##*/}-probe"
		rmdir "root/${MACHINE##*/}-probe"
		umount root
		mount -t overlay overlay -o lowerdir=install:etc root
		umount root
		mount -t tmpfs tmpfs root
		mknod root/fuse c 10 229
		: <root/fuse'
}

machine_etc_() {
	local etc=$MACHINE/etc

	printf '%s\n' root:x:0:0::/root:/bin/bash ann:x:1000:1000::/home/ann:/bin/bash \
		nobody:x:65534:65534::/nonexistent:/usr/sbin/nologin >"$etc/passwd"
	printf '%s\n' root:x:0: tty:x:5: ann:x:1000: nogroup:x:65534: >"$etc/group"
	echo 'passwd: files' >"$etc/nsswitch.conf"
	echo 127.0.0.1 localhost >"$etc/hosts"
	echo machine >"$etc/hostname"
	: >"$etc/fstab"
	tr -d - </proc/sys/kernel/random/uuid >"$etc/machine-id"
	ln -s ../proc/self/mounts "$etc/mtab"
	cp -L /etc/ld.so.cache "$etc/"
	[ ! -d /etc/alternatives ] || cp -a /etc/alternatives "$etc/"
}

machine_units_() {
	local dir=$MACHINE/etc/systemd/system unit

	ln -s /lib/systemd/system/multi-user.target "$dir/default.target"
	# The real machine's business, or not needed here.
	for unit in systemd-{udevd,udev-trigger,tmpfiles-setup-dev,logind}.service dbus.{service,socket} \
		systemd-udevd-{control,kernel}.socket getty.target console-getty.service \
		sys-kernel-{debug,tracing}.mount dev-hugepages.mount; do
		ln -s /dev/null "$dir/$unit"
	done
	# A user's manager is the real one, but PAM and logind have no part in its start.
	mkdir "$dir/user@.service.d" "$dir/user-runtime-dir@.service.d"
	printf '%s\n' '[Service]' PAMName= 'Environment=XDG_RUNTIME_DIR=/run/user/%i' \
		>"$dir/user@.service.d/plain.conf"
	printf '%s\n' '[Service]' ExecStart= 'ExecStart=/usr/bin/install -d -m 0700 -o %i -g %i /run/user/%i' \
		ExecStop= 'ExecStop=/bin/rm -rf /run/user/%i' >"$dir/user-runtime-dir@.service.d/plain.conf"
}

# machine_boot: returns when everything that starts at boot has started, or failed.
machine_boot() {
	# fd 3 is how bats talks to itself; a process that keeps it hangs bats.
	unshare --mount --propagation private --pid --fork --kill-child --net --uts --ipc \
		bash -euc "$(declare -f machine_first_ machine_second_ machine_devices_); machine_first_" \
		>"$MACHINE/log" 2>&1 </dev/null 3>&- &
	echo $! >"$MACHINE/outside"
	disown
	wait_for $((60 * SLOW)) machine_answers_or_gone_ && machine_answers_ || { cat "$MACHINE/log" >&2; return 1; }
	machine systemctl is-system-running --wait >"$MACHINE/log" || true # that is for the test to say
}

machine_answers_or_gone_() {
	machine_answers_ || pid_gone "$(<"$MACHINE/outside")"
}

machine_answers_() {
	MACHINE_PID=$(pgrep -P "$(<"$MACHINE/outside")") || return 1
	machine systemctl show -p Version >/dev/null 2>&1
}

# The first process, before it is systemd: a cgroup of its own, which is then all it sees.
machine_first_() {
	local cgroup

	mount -t cgroup2 cgroup2 "$MACHINE/root"
	cgroup=$MACHINE/root$(sed -n 's/^0:://p' /proc/self/cgroup)/${MACHINE##*/}
	mkdir "$cgroup"
	echo 0 >"$cgroup/cgroup.procs"
	umount "$MACHINE/root"
	exec unshare --cgroup bash -euc "$(declare -f machine_second_ machine_devices_); machine_second_"
}

machine_second_() {
	local dir

	mount -t tmpfs -o mode=0755 tmpfs "$MACHINE/root"
	cd "$MACHINE/root" || exit
	mkdir -p dev home/ann proc root run srv sys tmp usr var/{lib,cache,log/journal,tmp} .proc .old
	chmod 1777 tmp var/tmp
	chmod 0700 root home/ann
	chown 1000:1000 home/ann
	for dir in bin sbin lib lib32 lib64 libx32; do
		[ ! -L "/$dir" ] || ln -s "usr/$dir" "$dir"
	done
	cp -a "$MACHINE/etc" etc
	mount -t overlay overlay -o "lowerdir=$MACHINE/install/usr:/usr" usr
	mount --bind "$MACHINE/journal" var/log/journal
	machine_devices_
	mount -t tmpfs -o mode=0755,nosuid,nodev tmpfs run
	# The kernel's settings are the real machine's: they can only be looked at, but for those of
	# user namespaces, each of which has its own. Sandboxes may mount a proc of theirs only
	# where one can be seen that nothing covers.
	mount -t proc proc .proc
	mount -t proc proc proc
	mount --bind proc/sys proc/sys
	mount -o remount,bind,ro proc/sys
	mount --bind .proc/sys/user proc/sys/user
	mount -t sysfs -o ro sysfs sys
	mount -t cgroup2 cgroup2 sys/fs/cgroup
	pivot_root . .old
	cd /
	umount -l /.old
	rmdir /.old
	mount --make-rshared /
	exec env -i "PATH=$MACHINE_PATH" container=test setpriv --bounding-set -sys_module,-sys_time \
		/lib/systemd/systemd --system --log-target=journal --show-status=no
}

# With the modes that Debian gives them.
machine_devices_() {
	local device name major minor

	mount -t tmpfs -o mode=0755,nosuid tmpfs dev
	for device in null:1:3 zero:1:5 full:1:7 random:1:8 urandom:1:9 tty:5:0 fuse:10:229 autofs:10:235; do
		IFS=: read -r name major minor <<<"$device"
		mknod -m 0666 "dev/$name" c "$major" "$minor"
	done
	mkdir dev/pts dev/shm
	mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts
	mount -t tmpfs -o mode=1777 tmpfs dev/shm
	ln -s pts/ptmx dev/ptmx
	ln -s null dev/console
	ln -s /proc/self/fd dev/fd
}

# machine CMD…: inside, as root.
machine() {
	nsenter --target "$MACHINE_PID" --mount --pid --net --uts --ipc --cgroup --root --wdns=/ \
		env -i HOME=/root LC_ALL=C.UTF-8 "PATH=$MACHINE_PATH" SYSTEMD_PAGER= "$@" </dev/null 3>&-
}

# machine_ann CMD…: as her, as after a login.
machine_ann() {
	machine setpriv --reuid=1000 --regid=1000 --clear-groups env -i HOME=/home/ann USER=ann \
		XDG_RUNTIME_DIR=/run/user/1000 LC_ALL=C.UTF-8 "PATH=$MACHINE_PATH" SYSTEMD_PAGER= "$@"
}

# machine_poweroff: orderly, as the button does it. The journal can still be read.
machine_poweroff() {
	kill -RTMIN+4 "$MACHINE_PID" || return 1
	wait_for $((60 * SLOW)) pid_gone "$MACHINE_PID"
}

# machine_off: for teardown_file. Fails, and turns it off by force, if it does not go off in order.
machine_off() {
	local failed=0 pid

	[ -n "${MACHINE:-}" ] || return 0
	pid_gone "$MACHINE_PID" || machine_poweroff || failed=1
	if [ -s "$MACHINE/outside" ]; then
		pid=$(<"$MACHINE/outside")
		# Its child goes with it, and all who are inside with that.
		pid_gone "$pid" || wait_for 5 pid_gone "$pid" || kill -KILL "$pid"
		wait_for 20 pid_gone "$pid" || failed=1
	fi
	wait_for 20 machine_cgroups_gone_ || failed=1
	rm -rf --one-file-system "$MACHINE"
	return "$failed"
}

machine_cgroups_gone_() {
	# shellcheck disable=SC2016
	unshare --mount --propagation private bash -uc '
		mount -t cgroup2 cgroup2 "$MACHINE/root" || exit
		cd "$MACHINE/root"
		for dir in $(find . -type d -name "${MACHINE##*/}"); do
			find "$dir" -depth -type d -exec rmdir {} + 2>/dev/null
			[ ! -d "$dir" ] || exit 1
		done'
}

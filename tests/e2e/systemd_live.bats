#!/usr/bin/env bats
# The units under a real systemd, on a machine of their own: tests/lib/machine.bash.

load ../lib/machine

setup_file() {
	local etc
	machine_prepare
	etc=$MACHINE/etc
	mkdir -p "$etc"/threadfs "$etc"/systemd/system/multi-user.target.wants
	touch "$etc"/threadfs/{agents,boot,given,two-words,nowhere}.yaml
	printf 'threadfs:\n  lingr: 3\n' >"$etc/threadfs/wrong.yaml"
	echo SOURCE=foo: >"$etc/threadfs/nowhere.env"
	echo SOURCE=http://127.0.0.1:8080 >"$etc/threadfs/given.env"
	# What is there at boot: a service, somebody who needs it, a line of fstab.
	ln -s "$(unit_file)" "$etc/systemd/system/multi-user.target.wants/threadfs@boot.service"
	ln -s /lib/systemd/system/remote-fs.target "$etc/systemd/system/multi-user.target.wants/"
	cat >"$etc/systemd/system/needs.service" <<-'END'
		[Unit]
		Requires=threadfs@boot.service
		After=threadfs@boot.service
		[Service]
		Type=oneshot
		RemainAfterExit=yes
		ExecStart=/bin/cat /srv/boot/README
	END
	ln -s ../needs.service "$etc/systemd/system/multi-user.target.wants/"
	echo 'embedded: /srv/early threadfs _netdev,data=/var/lib/early,cache=/var/cache/early 0 0' >"$etc/fstab"
	# A sandbox that comes and goes.
	cat >"$etc/systemd/system/box.service" <<-END
		[Service]
		ExecStartPre=/bin/mkdir -p /var/lib/box
		ExecStart=$(program threadfs-sandboxd) --listen 127.0.0.1:8080 --data /var/lib/box
	END
	machine_boot
}

teardown_file() {
	machine_off
}

# What failed says why, and is not in the way of the next.
teardown() {
	[ -z "${BATS_TEST_COMPLETED:-}" ] && [ -n "${MACHINE:-}" ] || return 0
	journalctl -D "$MACHINE/journal" -o short-monotonic -n 60 --no-pager | cut -c 1-300
	pid_gone "$MACHINE_PID" && return
	machine systemctl stop user@1000 'threadfs@*' box srv-agents.automount srv-agents.mount || true
	machine umount -l -q /srv/agents || true
}

# unit_file, program NAME: where it is installed.
unit_file() {
	(cd "$MACHINE/install" && find . -name 'threadfs@.service' -path '*/system/*' -printf '/%P')
}

program() {
	(cd "$MACHINE/install" && find . -name "$1" -path '*/bin/*' -printf '/%P')
}

show() {
	machine systemctl show --value -p "$1" "$2"
}

# state UNIT STATE: it is that now.
state() {
	[ "$(show ActiveState "$1")" = "$2" ]
}

mounted() {
	machine findmnt -n -o FSTYPE -M "$1" | grep -qx fuse.threadfs
}

# No mount, not even a dead one, and no process.
nothing_of() {
	refute machine findmnt -n -M "$1" && no_process "$1"
}

no_process() {
	! machine pgrep -f "threadfs.* $1( |\$)" >/dev/null
}

# use DIR: a thread, a file, a command beside it.
use() {
	machine bash -euc '
		mkdir -p "$1/threads/demo"
		cd "$1/threads/demo"
		echo hello >uploads/x
		echo "tr a-z A-Z <uploads/x >outputs/x; id -un" >.ctl/exec
		[ "$(cat .ctl/exec)" = gem ]
		[ "$(cat outputs/x)" = HELLO ]' _ "$1"
}

# said UNIT TEXT: in the journal, which may take a moment.
said() {
	machine journalctl -u "$1" -o cat | grep "$2"
}

# since_boot UNIT: when it became active, in microseconds.
since_boot() {
	show ActiveEnterTimestampMonotonic "$1"
}

@test "boot: first the network, then the mounts, then who needs them" {
	cat "$MACHINE/log"
	state threadfs@boot active
	state needs active
	mounted /srv/boot
	mounted /srv/early
	[ "$(show NRestarts threadfs@boot)" = 0 ]
	[ "$(since_boot network-online.target)" -le "$(since_boot threadfs@boot)" ]
	[ "$(since_boot threadfs@boot)" -le "$(since_boot remote-fs.target)" ]
	[ "$(since_boot srv-early.mount)" -le "$(since_boot remote-fs.target)" ]
	[ "$(since_boot threadfs@boot)" -le "$(since_boot needs)" ]
	wait_until said needs "This is a threadfs mount"
	use /srv/early
	# Both end in order; nobody complains.
	machine systemctl stop threadfs@boot srv-early.mount
	refute state needs active
	wait_until nothing_of /srv/early
	nothing_of /srv/boot
	[ "$(show Result threadfs@boot)" = success ]
	[ -z "$(machine journalctl --quiet -o cat -p warning -u threadfs@boot)" ]
}

@test "enabled and started; restarted; stopped" {
	local pid cgroup

	machine systemctl enable --now threadfs@agents
	mounted /srv/agents
	[ "$(show StatusText threadfs@agents)" = "Mounted at /srv/agents" ]
	use /srv/agents
	pid=$(show MainPID threadfs@agents)
	machine systemctl restart threadfs@agents
	mounted /srv/agents
	[ "$(show MainPID threadfs@agents)" != "$pid" ]
	[ "$(machine cat /srv/agents/threads/demo/outputs/x)" = HELLO ]
	cgroup=/sys/fs/cgroup$(show ControlGroup threadfs@agents)
	machine test -d "$cgroup"
	machine systemctl disable --now threadfs@agents
	[ "$(show Result threadfs@agents)" = success ]
	nothing_of /srv/agents
	wait_until refute machine test -d "$cgroup" # nobody is left of it
}

listens() {
	machine bash -c ': </dev/tcp/127.0.0.1/8080' 2>/dev/null
}

starting() {
	[ "$(show SubState threadfs@given)" = start ] && [ "$(show MainPID threadfs@given)" != 0 ]
}

@test "it is active when the mount answers, not before" {
	machine systemctl start box
	wait_until listens
	machine systemctl kill -s STOP box
	machine systemctl start --no-block threadfs@given
	wait_until starting
	state threadfs@given activating
	refute mounted /srv/given
	machine systemctl kill -s CONT box
	machine systemctl start threadfs@given # waits for the same
	state threadfs@given active
	mounted /srv/given
	machine ls /srv/given/threads/default/
	machine systemctl stop threadfs@given box
	nothing_of /srv/given
}

@test "a sandbox that cannot be reached is tried until it can" {
	refute machine systemctl start threadfs@given
	[[ $(show StatusText threadfs@given) == "http://127.0.0.1:8080: Connection refused"* ]]
	state threadfs@given activating # again, soon
	machine systemctl start box
	wait_until state threadfs@given active
	mounted /srv/given
	machine systemctl stop threadfs@given box
	nothing_of /srv/given
}

# failed_for_good UNIT: and it was not tried again.
failed_for_good() {
	state "$1" failed && [ "$(show ExecMainStatus "$1")" = 2 ] && [ "$(show NRestarts "$1")" = 0 ]
}

@test "settings that are wrong are not tried again" {
	refute machine systemctl start threadfs@wrong
	failed_for_good threadfs@wrong
	wait_until said threadfs@wrong "unknown key 'lingr': did you mean 'linger'?"
	refute machine systemctl start threadfs@nowhere
	failed_for_good threadfs@nowhere
	wait_until said threadfs@nowhere "unknown source 'foo:'"
	machine systemctl reset-failed threadfs@wrong threadfs@nowhere
}

restarted() {
	[ "$(show NRestarts threadfs@agents)" = 1 ] && state threadfs@agents active
}

# kill_it: sets KILLED, for cleared.
kill_it() {
	KILLED=$(show MainPID threadfs@agents)
	machine kill -KILL "$KILLED"
}

# What is left of the killed one is cleared away; or, if we are late, the next is there already.
cleared() {
	[ "$(show MainPID threadfs@agents)" != "$KILLED" ] &&
		[[ $(show SubState threadfs@agents) =~ ^(auto-restart|running)$ ]]
}

@test "killed: it is started again, and its place is never dead" {
	machine systemctl start threadfs@agents
	use /srv/agents
	kill_it
	wait_until cleared
	machine stat -f /srv/agents
	wait_until restarted
	mounted /srv/agents
	[ "$(machine cat /srv/agents/threads/demo/outputs/x)" = HELLO ]
	use /srv/agents
	# Stopped before it is started again.
	kill_it
	wait_until cleared
	machine systemctl stop threadfs@agents
	nothing_of /srv/agents
	machine rmdir /srv/agents
}

@test "what others have mounted at its place stays" {
	# A disk.
	machine mkdir -p /srv/agents
	machine mount -t tmpfs disk /srv/agents
	machine touch /srv/agents/precious
	machine systemctl start threadfs@agents
	mounted /srv/agents
	machine systemctl stop threadfs@agents
	machine test -e /srv/agents/precious
	machine umount /srv/agents
	# A mount of somebody's own.
	machine "$(program threadfs)" mount -o data=/var/lib/own,cache=/var/cache/own /srv/agents
	refute machine systemctl start threadfs@agents
	wait_until said threadfs@agents "threadfs is already mounted there"
	machine systemctl stop threadfs@agents
	use /srv/agents
	machine "$(program threadfs)" unmount /srv/agents
	nothing_of /srv/agents
	wait_until state srv-agents.mount inactive # systemd takes its time to notice
}

# fstab LINE: the only one from now on.
fstab() {
	machine bash -c 'echo "$1" >/etc/fstab && systemctl daemon-reload' _ "$1"
}

@test "a name with a dash, on a disk of its own" {
	fstab 'disk /srv/two-words tmpfs noauto 0 0'
	machine systemctl start threadfs@two-words
	mounted /srv/two-words
	use /srv/two-words
	machine systemctl stop threadfs@two-words
	[ "$(machine findmnt -n -o FSTYPE -M /srv/two-words)" = tmpfs ]
	machine systemctl stop 'srv-two\x2dwords.mount'
	nothing_of /srv/two-words
	fstab ''
}

@test "the example of a .mount" {
	cp "$(find "$MACHINE/install" -name srv-agents.mount)" "/proc/$MACHINE_PID/root/etc/systemd/system/"
	machine systemctl daemon-reload
	machine systemctl start srv-agents.mount
	mounted /srv/agents
	use /srv/agents
	for _ in 1 2 3; do
		machine systemctl restart srv-agents.mount
		mounted /srv/agents
		[ "$(machine cat /srv/agents/threads/demo/outputs/x)" = HELLO ]
	done
	machine systemctl stop srv-agents.mount
	[ "$(show Result srv-agents.mount)" = success ]
	wait_until nothing_of /srv/agents
	machine rm /etc/systemd/system/srv-agents.mount
	machine systemctl daemon-reload
}

@test "fstab: mounted when somebody goes there, and only as long" {
	grep -q autofs /proc/filesystems || skip "the kernel has no autofs"
	fstab 'embedded: /srv/agents threadfs noauto,x-systemd.automount,x-systemd.idle-timeout=1,allow_other 0 0'
	machine systemctl start srv-agents.automount
	state srv-agents.mount inactive
	use /srv/agents
	machine bash -euc 'cd /srv/agents && systemctl is-active srv-agents.mount'
	wait_until state srv-agents.mount inactive # nobody is there any more
	state srv-agents.automount active
	# Killed while somebody is there.
	machine bash -euc 'cd /srv/agents
		kill -KILL "$(pgrep -f "^/sbin/mount.threadfs embedded: /srv/agents")"'
	wait_until state srv-agents.mount inactive
	[ "$(machine cat /srv/agents/threads/demo/outputs/x)" = HELLO ]
	machine systemctl stop srv-agents.automount srv-agents.mount
	wait_until nothing_of /srv/agents
	fstab ''
}

@test "a user's own service" {
	local unit=threadfs@agents wrong=threadfs@wrong pid

	machine systemctl start user@1000
	machine_ann mkdir -p /home/ann/.config/threadfs
	refute machine_ann systemctl --user start $unit # there is no agents.yaml
	machine_ann touch /home/ann/.config/threadfs/agents.yaml
	machine_ann bash -c 'echo "threadfs: {lingr: 3}" >~/.config/threadfs/wrong.yaml'
	refute machine_ann systemctl --user start $wrong
	[ "$(machine_ann systemctl --user is-failed $wrong)" = failed ]
	[ "$(machine_ann systemctl --user show --value -p NRestarts $wrong)" = 0 ]
	machine_ann systemctl --user start $unit
	mounted /home/ann/agents
	machine_ann mkdir /home/ann/agents/threads/demo
	machine_ann bash -c 'cd ~/agents/threads/demo && echo "id -un >outputs/x" >.ctl/exec'
	[ "$(machine_ann cat /home/ann/agents/threads/demo/outputs/x)" = gem ]
	pid=$(machine_ann systemctl --user show --value -p MainPID $unit)
	[ "$(machine ps -o euid= -p "$pid")" -eq 1000 ]
	machine kill -KILL "$pid"
	wait_until machine_ann_restarted $unit
	[ "$(machine_ann cat /home/ann/agents/threads/demo/outputs/x)" = gem ]
	machine_ann systemctl --user stop $unit
	nothing_of /home/ann/agents
	[ "$(machine_ann systemctl --user show --value -p Result $unit)" = success ]
	# She logs out while it is mounted.
	machine_ann systemctl --user start $unit
	mounted /home/ann/agents
	machine systemctl stop user@1000
	nothing_of /home/ann/agents
}

machine_ann_restarted() {
	[ "$(machine_ann systemctl --user show --value -p NRestarts "$1")" = 1 ] &&
		[ "$(machine_ann systemctl --user is-active "$1")" = active ]
}

# before A B: the log has a line A, and none B before it.
before() {
	local a b

	a=$(grep -nm 1 -E "$1" "$MACHINE/log" | cut -d : -f 1)
	b=$(grep -nm 1 -E "$2" "$MACHINE/log" | cut -d : -f 1)
	[ -n "$a" ] && [ "$a" -lt "${b:-999999}" ] && return
	echo "not before '$2': '$1'"
	return 1
}

# The last test: it turns the machine off.
@test "the machine goes off while it is mounted" {
	machine systemctl start threadfs@agents threadfs@two-words needs
	use /srv/agents
	use /srv/two-words
	machine_poweroff
	journalctl -D "$MACHINE/journal" -o cat | sed -n '/^Received SIGRTMIN/,$p' >"$MACHINE/log"
	grep "^threadfs@agents.service: Deactivated successfully" "$MACHINE/log"
	refute grep -E "threadfs.*(Failed with result|timed out|SIGKILL)" "$MACHINE/log"
	# Who needs it goes first, and nobody takes it away from under its daemon.
	before '^Stopped needs.service' '^Stopping threadfs@boot.service'
	before '^Stopped threadfs@boot.service' '^Unmounting srv-boot.mount'
	before '^Stopped threadfs@agents.service' '^Unmounting srv-agents.mount'
	before '^Stopped threadfs@two-words.service' '^Unmounting srv-two.x2dwords.mount'
	refute journalctl -D "$MACHINE/journal" -o cat -g 'ordering cycle'
	# In all its life nothing that a sanitizer or an assert() would say.
	refute journalctl -D "$MACHINE/journal" -o cat -g 'Sanitizer: |runtime error: |Assertion `'
}

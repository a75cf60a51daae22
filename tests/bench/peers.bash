# Who scripts/bench mount compares: how each contender is mounted, and the servers
# behind it. Sourced by mount.bash.
#
# A contender is entered for one round and left again, so that no cache of the
# round before helps. All see the same files: $user_data, in memory.
# shellcheck shell=bash
# shellcheck disable=SC2154,SC2034 # of, and for, scripts/bench and mount.bash

all_contenders=(local passthrough curl curl16 threadfs-1.9 threadfs-aiod sshfs-plain sshfs
	rclone-http rclone davfs2)
more_contenders=(threadfs-1.0 curl-unix) # if they are named
peers=(sshfs-plain sshfs rclone-http rclone davfs2) # mounts of others

view=      # where the files of the one that was entered are
mount_dir= # and where it is mounted; empty: nothing is
mount_pid= # of its daemon; empty: it has none, or ends by itself
mount_who=
why= # what went wrong last

declare -A absent=()      # contender → why it cannot be here
declare -A server_port=() # name of a server → its TCP port
declare -A far_port=()    # the same through the relay

# ---- processes ----

# start_server NAME COMMAND…: in the background, away from the terminal's signals;
# its output is in $work/NAME.log. Sets server_pid.
start_server() {
	local name=$1
	shift
	: >"$work/$name.log"
	setsid "$@" >"$work/$name.log" 2>&1 </dev/null &
	server_pid=$!
	started+=("$server_pid")
}

is_gone() {
	local line
	line=$(cat "/proc/$1/stat" 2>/dev/null) || return 0
	line=${line##*) }
	[ "${line%% *}" = Z ]
}

# await SECONDS COMMAND…: until it succeeds; fails when it never did.
await() {
	local end=$((${EPOCHREALTIME/./} + $1 * 1000000))
	shift
	until "$@"; do
		[ "${EPOCHREALTIME/./}" -lt "$end" ] || return 1
		sleep 0.01
	done
}

last_words() { tail -n 1 "$work/$1.log" | cut -c 1-200; }

free_port() {
	local i
	for ((i = 0; i < 50; i++)); do
		port=$((20000 + RANDOM % 12000))
		(exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || return 0
	done
	why="no free port"
	return 1
}

answers_on() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# await_port NAME PORT: until the server answers there.
await_port() {
	local pid=$server_pid
	until_answer_() { answers_on "$1" || is_gone "$pid"; }
	await 20 until_answer_ "$2" || true
	answers_on "$2" && return
	why="$1: $(last_words "$1")"
	return 1
}

# ---- servers ----

# serve_sandbox DIALECT: a sandbox with the files, on a port as the peers' servers.
serve_sandbox() {
	[ -z "${server_port[$1]:-}" ] || return 0
	free_port || return
	start_server "$1" "$programs/threadfs-sandboxd" --listen "127.0.0.1:$port" \
		--data "$user_data" --dialect "$1"
	await_port "$1" "$port" || return
	server_port[$1]=$port
}

# serve_socket: another one on $work/sock, as embedded sandboxes are.
serve_socket() {
	[ ! -S "$work/sock" ] || return 0
	start_server socket "$programs/threadfs-sandboxd" --socket "$work/sock" --data "$user_data"
	await 20 curl -sf -o /dev/null --unix-socket "$work/sock" http://sandbox/v1/sandbox && return
	why="threadfs-sandboxd: $(last_words socket)"
	return 1
}

# far NAME PORT: sets port to where the server on PORT is far away.
far() {
	port=${far_port[$1]:-}
	[ -z "$port" ] || return 0
	free_port || return
	start_server "far-$1" "$programs/tests/bench_relay" "$round_trip_ms" "$port=$2"
	await 5 grep -q ready "$work/far-$1.log" || {
		why="relay: $(last_words "far-$1")"
		return 1
	}
	far_port[$1]=$port
}

# near_or_far NET NAME: sets port to that of the server.
near_or_far() {
	port=${server_port[$2]}
	[ "$1" = near ] || far "$2" "$port"
}

serve_nginx() {
	local user='' module=/usr/lib/nginx/modules/ngx_http_dav_ext_module.so
	[ -z "${server_port[nginx]:-}" ] || return 0
	free_port || return
	[ "$(id -u)" != 0 ] || user='user root;'
	mkdir -p "$work/nginx"
	cat >"$work/nginx/conf" <<-END
		load_module $module;
		$user
		worker_processes 2;
		daemon off;
		pid $work/nginx/pid;
		error_log $work/nginx/errors error;
		events { worker_connections 1024; }
		http {
			access_log off;
			sendfile on;
			tcp_nopush on;
			tcp_nodelay on;
			keepalive_requests 1000000;
			default_type application/octet-stream;
			client_max_body_size 0;
			client_body_buffer_size 1m;
			client_body_temp_path $work/nginx;
			proxy_temp_path $work/nginx;
			fastcgi_temp_path $work/nginx;
			uwsgi_temp_path $work/nginx;
			scgi_temp_path $work/nginx;
			server {
				listen 127.0.0.1:$port;
				root $user_data;
				autoindex on;
				dav_methods PUT DELETE MKCOL COPY MOVE;
				dav_ext_methods PROPFIND OPTIONS;
			}
		}
	END
	start_server nginx "$(command -v nginx || echo /usr/sbin/nginx)" -c "$work/nginx/conf" \
		-e "$work/nginx/errors"
	await_port nginx "$port" || return
	server_port[nginx]=$port
}

# serve_sftp: sftp-server itself on a port, a process per connection, without ssh.
serve_sftp() {
	[ -z "${server_port[sftp]:-}" ] || return 0
	free_port || return
	start_server sftp socat "TCP-LISTEN:$port,bind=127.0.0.1,reuseaddr,fork,nodelay" \
		EXEC:/usr/lib/openssh/sftp-server,nofork
	await_port sftp "$port" || return
	server_port[sftp]=$port
}

serve_ssh() {
	local sshd=(/usr/sbin/sshd -D -e -f "$work/ssh/conf")
	[ -z "${server_port[sshd]:-}" ] || return 0
	free_port || return
	mkdir -p "$work/ssh"
	ssh-keygen -q -t ed25519 -N '' -f "$work/ssh/host" && ssh-keygen -q -t ed25519 -N '' \
		-f "$work/ssh/key" || return
	cp "$work/ssh/key.pub" "$work/ssh/authorized"
	cat >"$work/ssh/conf" <<-END
		ListenAddress 127.0.0.1
		Port $port
		HostKey $work/ssh/host
		AuthorizedKeysFile $work/ssh/authorized
		PidFile none
		StrictModes no
		UsePAM no
		PermitRootLogin yes
		PasswordAuthentication no
		Subsystem sftp internal-sftp
	END
	# As root it wants a directory that only the service's start would make.
	if [ "$(id -u)" = 0 ] && [ ! -d /run/sshd ]; then
		sshd=(unshare --mount --propagation slave sh -c
			'mount -t tmpfs tmpfs /run && mkdir -m 755 /run/sshd && exec "$@"' sh "${sshd[@]}")
	fi
	start_server sshd "${sshd[@]}"
	await_port sshd "$port" || return
	server_port[sshd]=$port
}

# ---- contenders ----

packages_of() {
	case $1 in
	sshfs-plain) echo sshfs openssh-sftp-server socat ;;
	sshfs) echo sshfs openssh-client openssh-server ;;
	rclone*) echo rclone fuse3 nginx-light libnginx-mod-http-dav-ext ;;
	davfs2) echo davfs2 nginx-light libnginx-mod-http-dav-ext ;;
	esac
}

# prepare_contender NAME: what it needs besides its mount; else it is absent.
prepare_contender() {
	local packages
	read -ra packages < <(packages_of "$1") || true
	why=
	if [ ${#packages[@]} -gt 0 ] && ! (need_packages "${packages[@]}") >"$work/apt.log" 2>&1; then
		absent[$1]="cannot install ${packages[*]}"
	elif [ "$1" = davfs2 ] && [ "$(id -u)" != 0 ]; then
		absent[$1]="only root can mount it"
	elif [ "$1" != local ] && [[ $1 != curl* ]] && [ ! -w /dev/fuse ]; then
		absent[$1]="no permission to use /dev/fuse"
	elif ! prepare_servers_ "$1"; then
		absent[$1]=${why:-it does not start}
	fi
}

prepare_servers_() {
	case $1 in
	curl | curl16) serve_sandbox aiod ;;
	curl-unix) serve_socket ;;
	sshfs-plain) serve_sftp ;;
	sshfs) serve_ssh ;;
	rclone* | davfs2) serve_nginx ;;
	esac
}

is_mounted() {
	awk -v dir="$1" '$5 == dir { found = 1 } END { exit !found }' /proc/self/mountinfo
}

# Starts the contender's daemon and waits for the mount.
mount_with() {
	local name=mount-$mount_who pid
	start_server "$name" "$@"
	mount_pid=$server_pid
	pid=$mount_pid
	unset 'started[-1]' # leave() ends it
	mounted_or_gone_() { is_mounted "$mount_dir" || is_gone "$pid"; }
	await 20 mounted_or_gone_ || true
	is_mounted "$mount_dir" && return
	why="does not mount: $(last_words "$name")"
	return 1
}

# enter NAME NET: NET is near or far. Sets view; in any case, leave follows.
enter() {
	mount_who=$1
	mount_pid=
	why=
	mount_dir=
	if [ "$1" = local ]; then
		view=$user_data
		return
	fi
	mount_dir=$(mktemp -d "$work/mnt.XXXXXX")
	view=$mount_dir
	case $1 in
	passthrough) mount_with "$programs/tests/bench_passthrough" "$user_data" "$mount_dir" ;;
	threadfs-*) enter_threadfs_ "${1#threadfs-}" "$2" ;;
	sshfs-plain) enter_sshfs_plain_ "$2" ;;
	sshfs) enter_sshfs_ "$2" ;;
	rclone-http) enter_rclone_ "$2" :http: --http-url --read-only ;;
	rclone) enter_rclone_ "$2" :webdav: --webdav-url --vfs-cache-mode full --vfs-write-back 0s ;;
	davfs2) enter_davfs2_ "$2" ;;
	*) die "no contender is called '$1'" ;;
	esac || return
	# What the first use of any mount costs is not what is measured.
	timeout --foreground 60 ls "$view/uploads" >/dev/null 2>"$work/errors" && return
	why="does not answer: $(tail -n 1 "$work/errors")"
	return 1
}

enter_threadfs_() {
	local source=embedded: options=data=$work/data,cache=$work/cache,log=$work/threadfs.log
	case $2 in
	near)
		options+=,dialect=$1
		view=$mount_dir/threads/bench
		;;
	far)
		serve_sandbox "$1" && near_or_far far "$1" || return
		source=http://127.0.0.1:$port
		view=$mount_dir/threads/default
		;;
	esac
	mount_with "$programs/threadfs" mount -f -o "$options" "$source" "$mount_dir"
}

sshfs_caches=dir_cache=yes,dcache_timeout=3600,kernel_cache,attr_timeout=3600,entry_timeout=3600
sshfs_caches+=,negative_timeout=3600

enter_sshfs_plain_() {
	near_or_far "$1" sftp || return
	mount_with sshfs -f -o "$sshfs_caches,directport=$port" "127.0.0.1:$user_data" "$mount_dir"
}

enter_sshfs_() {
	local ssh=IdentityFile=$work/ssh/key,UserKnownHostsFile=/dev/null,StrictHostKeyChecking=no
	near_or_far "$1" sshd || return
	ssh+=,LogLevel=ERROR,Compression=no,Ciphers=aes128-gcm@openssh.com
	mount_with sshfs -f -F /dev/null -p "$port" -o "$sshfs_caches,$ssh" \
		"$(id -un)@127.0.0.1:$user_data" "$mount_dir"
}

# enter_rclone_ NET REMOTE URL-OPTION OPTION…
enter_rclone_() {
	local net=$1 remote=$2 url=$3
	shift 3
	near_or_far "$net" nginx || return
	rm -rf "$work/rclone"
	mount_with rclone mount "$remote" "$mount_dir" --config /dev/null --cache-dir "$work/rclone" \
		"$url" "http://127.0.0.1:$port/" --dir-cache-time 1h --attr-timeout 1h \
		--transfers 16 --checkers 16 "$@"
}

# It goes into the background by itself.
enter_davfs2_() {
	local pid_file
	near_or_far "$1" nginx || return
	rm -rf "$work/davfs2"
	mkdir -p "$work/davfs2"
	chmod 777 "$work/davfs2"
	cat >"$work/davfs2.conf" <<-END
		use_locks 0
		ask_auth 0
		delay_upload 0
		cache_dir $work/davfs2
		cache_size 4096
		dir_refresh 3600
		file_refresh 3600
		buf_size 1024
		secrets $work/davfs2.secrets
	END
	: >"$work/davfs2.secrets"
	chmod 600 "$work/davfs2.secrets"
	mount.davfs "http://127.0.0.1:$port/" "$mount_dir" -o "conf=$work/davfs2.conf" \
		>"$work/mount-davfs2.log" 2>&1 </dev/null || {
		why="does not mount: $(last_words mount-davfs2)"
		return 1
	}
	# It ends by itself when it is unmounted, but not at once.
	pid_file=${mount_dir#/}
	mount_pid=$(cat "/run/mount.davfs/${pid_file//\//-}.pid" 2>/dev/null) || mount_pid=
}

# A mount's caches end with the mount; these are the machine's. The programs come back before the
# clock starts: how fast a disk reads bash is nobody's merit.
drop_caches() {
	local program
	[ "$(id -u)" != 0 ] || { echo 3 >/proc/sys/vm/drop_caches; } 2>/dev/null || true
	for program in bash sh find grep tar git ls cp cat head stat base64 mktemp wc rm mv chmod; do
		"$program" --version >/dev/null 2>&1 || true
	done
}

# settle: before a warm run, gives the mount time to see what it watches.
settle() {
	[[ $mount_who == threadfs-* ]] || return 0
	watch_is_live_() { grep -qE '^watch +live' "$view/.ctl/status" 2>/dev/null; }
	await 1 watch_is_live_ || true
}

not_mounted_() { ! is_mounted "$mount_dir"; }

unmount_() {
	case $mount_who in
	threadfs-*) timeout 30 "$programs/threadfs" unmount "$mount_dir" ;;
	davfs2) umount -i "$mount_dir" ;; # its own helper looks every three seconds
	*) fusermount3 -u "$mount_dir" ;;
	esac >/dev/null 2>&1
}

# leave: unmounts, by force if need be, and ends the daemon. Nothing stays.
leave() {
	local i
	[ -n "$mount_dir" ] || return 0
	for ((i = 0; i < 20; i++)); do
		not_mounted_ && break
		unmount_ || sleep 0.1
	done
	not_mounted_ || fusermount3 -uz "$mount_dir" 2>/dev/null || umount -l "$mount_dir" || true
	if [ -n "$mount_pid" ]; then
		await 15 is_gone "$mount_pid" || kill "$mount_pid" 2>/dev/null || true
		await 5 is_gone "$mount_pid" || kill -KILL "$mount_pid" 2>/dev/null || true
		wait "$mount_pid" 2>/dev/null || true
	fi
	not_mounted_ && rmdir "$mount_dir"
	mount_dir=
	mount_pid=
	rm -rf "$work/cache" "$work/rclone" "$work/davfs2"
}

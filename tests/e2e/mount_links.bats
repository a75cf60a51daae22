# What a hostile sandbox could lead the host's user to: links out of it; and control
# files, that no walk may come upon.

load ../lib/mount

setup() {
	mount_setup
	echo secret >"$T/victim" # of the host
}

teardown() {
	teardown_mount
}

# Links that lead out of the sandbox's view, made there.
make_traps() {
	same "$(sandbox "
		cd outputs
		ln -s /etc/passwd etc
		ln -s $T/victim victim
		ln -s ../../../../../../../../../../../../$T/victim up
		ln -s ../../../.. far
		ln -s / slash
		ln -s ./../../../../../../../../../$T dir
		ln -s /mnt/user-data/../../$T/victim through
		ln -s /mnt/user-data-not/x prefix
		ln -s ../.ctl/exec ctl
		ln -s /mnt/user-data/.ctl/status ctl2
		ln -s ../../../../../../../proc/self/environ proc
		cd ..")" ''
}

TRAPS=(etc victim up far slash dir through prefix ctl ctl2 proc)

@test "links out of the sandbox lead nowhere" {
	mount_start
	thread
	make_traps
	for name in "${TRAPS[@]}"; do
		same "$name $(errno_of readlink "outputs/$name")" "$name EPERM"
		same "$name $(errno_of open "outputs/$name" O_RDONLY)" "$name EPERM"
		same "$name $(errno_of stat "outputs/$name")" "$name EPERM"
		same "$name $(errno_of open "outputs/$name" 'O_WRONLY|O_CREAT|O_TRUNC')" "$name EPERM"
		same "$name $(errno_of lstat "outputs/$name")" "$name ok"
	done
	echo overwritten >"$T/x"
	for name in victim up through; do
		refute cat "outputs/$name"
		refute cp "$T/x" "outputs/$name"
		refute cp "outputs/$name" "$T/copy"
		refute truncate -s 0 "outputs/$name"
		refute dd if="$T/x" of="outputs/$name" status=none
	done
	refute cp "$T/x" outputs/dir/
	refute cp "$T/x" outputs/dir/victim
	refute cat outputs/slash/etc/passwd
	refute ls outputs/far/
	is EPERM chmod outputs/victim =0
	same "$(cat "$T/victim")" secret
	[ ! -e "$T/copy" ]
	# they are there, and can be moved and removed as any other
	same "$(ls outputs | wc -l)" "${#TRAPS[@]}"
	refute grep -rqs secret .
	mv outputs/victim workspace/
	rm -r outputs/* workspace/victim
	same "$(sandbox 'ls outputs workspace | grep -v :')" ''
	same "$(cat "$T/victim")" secret
}

@test "links inside are what they were meant to be" {
	mount_start
	thread
	same "$(sandbox '
		mkdir -p outputs/a/b; echo x > uploads/x
		ln -s /mnt/user-data/uploads/x outputs/absolute
		ln -s ../uploads/x outputs/relative
		ln -s ../../../uploads/x outputs/a/b/up
		ln -s /mnt/user-data outputs/root
		ln -s /mnt/user-data/outputs/a outputs/a/b/here
		ln -s ../../../../../mnt/user-data/uploads/x outputs/around
		ln -s /mnt/../mnt/./user-data//uploads/x outputs/odd
		ln -s /mnt/user-data/nothing outputs/dangling')" ''
	for name in absolute relative a/b/up around odd root/uploads/x a/b/here/b/up; do
		same "$name $(cat "outputs/$name")" "$name x"
	done
	same "$(readlink outputs/absolute)" ../uploads/x
	same "$(readlink outputs/relative)" ../uploads/x
	same "$(readlink outputs/around)" ../uploads/x
	same "$(readlink outputs/root)" ..
	same "$(realpath outputs/root)" "$W"
	same "$(readlink outputs/dangling)" ../nothing
	is ENOENT stat outputs/dangling
	echo y >outputs/absolute
	same "$(cat uploads/x)" y
	same "$(find -L outputs/a -name up -maxdepth 2)" outputs/a/b/up
	# made through the mount: inside, by its path here
	ln -s "$W/uploads/x" workspace/l
	same "$(sandbox 'readlink workspace/l; cat workspace/l')" $'/mnt/user-data/uploads/x\ny'
	same "$(readlink workspace/l)" ../uploads/x
	same "$(cat workspace/l)" y
	ln -sfn /mnt/user-data/outputs workspace/l
	same "$(readlink workspace/l)" ../outputs
	ln -sfn ../uploads workspace/l
	same "$(ls workspace/l/)" x
	# out of it: the sandbox may have it, we do not follow it
	ln -s "$T/victim" workspace/out
	same "$(sandbox 'readlink workspace/out')" "$T/victim"
	is EPERM open workspace/out O_RDONLY
}

@test "a link that changes between two looks" {
	mount_start
	thread
	same "$(sandbox "echo inside > uploads/x; ln -s ../uploads/x outputs/l")" ''
	same "$(cat outputs/l)" inside
	same "$(sandbox "ln -sfn $T/victim outputs/l")" ''
	wait_until trapped outputs/l
	refute cp outputs/l "$T/copy"
	same "$(sandbox "ln -sfn ../uploads/x outputs/l")" ''
	wait_until grep -q inside outputs/l
	# a directory that becomes a link
	same "$(sandbox 'mkdir outputs/d; echo x > outputs/d/victim')" ''
	same "$(cat outputs/d/victim)" x
	same "$(sandbox "rm -r outputs/d; ln -s $T outputs/d")" ''
	wait_until trapped outputs/d
	refute cat outputs/d/victim
}

trapped() {
	[ "$(errno_of stat "$1")" = EPERM ]
}

# Both sides as fast as they can: the sandbox swaps a directory, a file and a link to ours. In one
# process, as one for each step would take longer than all the steps.
swap_body='
import os, shutil, sys, time
ours = sys.argv[1]
def write(path):
    with open(path, "w") as f:
        f.write("inside\n")
def replace(target, path): # as ln -sfn does
    os.symlink(target, "new link")
    os.rename("new link", path)
def clear(path):
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)
def swap_directory():
    clear("new link")
    clear("d")
    yield replace("real", "d")
    yield replace(ours, "d")
    yield os.unlink("d")
    os.mkdir("d")
    yield write("d/victim")
    yield shutil.rmtree("d", ignore_errors=True)
def swap_file():
    yield replace("real/victim", "f")
    yield replace(ours + "/victim", "f")
    yield os.unlink("f")
    yield write("f")
def swap_parent():
    yield os.rename("real", "moved")
    yield os.symlink(ours, "real")
    yield os.unlink("real")
    yield os.rename("moved", "real")
os.chdir("outputs")
os.makedirs("real", exist_ok=True)
write("real/victim")
done = 0
for i in range(400):
    for swap in (swap_directory, swap_file, swap_parent):
        try:
            for step in swap():
                time.sleep(0.001)
            done += 1
        except OSError: # the other side was there
            pass
with open("end.new", "w") as f:
    print(done, file=f)
os.rename("end.new", "end")
'

@test "links that change all the time lead nowhere, reading or writing" {
	mount_start
	thread
	mkdir "$T/trap"
	echo secret >"$T/trap/victim"
	printf '%s' "$swap_body" >workspace/swap.py
	same "$(sandbox "python3 workspace/swap.py $T/trap >/dev/null 2>&1 &")" ''
	"$PYTHON" -I -c '
import os, sys, time
trap = sys.argv[1]
end = time.monotonic() + 300
tried = 0
def attempt(what):
    global tried
    tried += 1
    try:
        return what()
    except OSError:
        return b""
def read(path):
    with open(path, "rb") as f:
        return f.read()
def write(path, flags):
    fd = os.open(path, os.O_WRONLY | flags, 0o644)
    try:
        os.write(fd, b"overwritten")
    finally:
        os.close(fd)
while not os.path.exists("outputs/end") and time.monotonic() < end:
    for path in ("outputs/d/victim", "outputs/f", "outputs/real/victim"):
        assert b"secret" not in (attempt(lambda: read(path)) or b"")
        attempt(lambda: write(path, os.O_TRUNC))
    attempt(lambda: write("outputs/d/new", os.O_CREAT | os.O_EXCL))
    attempt(lambda: write("outputs/d/new", os.O_CREAT | os.O_TRUNC))
    attempt(lambda: os.rename("outputs/real/victim", "outputs/d/moved"))
    attempt(lambda: os.chmod("outputs/f", 0o600))
    attempt(lambda: os.unlink("outputs/d/victim"))
    attempt(lambda: os.mkdir("outputs/d/dir"))
    assert os.listdir(trap) == ["victim"] and open(trap + "/victim").read() == "secret\n"
print("tried", tried)
' "$T/trap"
	same "$(ls "$T/trap")" victim
	same "$(cat "$T/trap/victim")" secret
	# it was not in vain
	[ "$(cat outputs/end)" -ge 100 ]
	expect_errors
}

@test "loops end" {
	mount_start
	thread
	same "$(sandbox '
		cd outputs; ln -s b a; ln -s a b; ln -s . self; ln -s .. up; ln -s /mnt/user-data/outputs outputs
		mkdir d; ln -s ../d d/d; echo x >d/f')" ''
	is ELOOP stat outputs/a
	is ELOOP open outputs/b O_RDONLY
	same "$(cat outputs/self/self/up/outputs/d/d/d/f)" x
	same "$(find . -name f)" ./outputs/d/f
	find -L . >/dev/null 2>"$T/loops" || true
	grep -q 'loop' "$T/loops"
	same "$(grep -rl x .)" ./outputs/d/f
	is ELOOP stat "outputs/$(printf 'self/%.0s' {1..100})d"
	is ENAMETOOLONG stat "outputs/$(printf 'self/%.0s' {1..1000})d"
}

@test "-o symlinks=deny hides them" {
	mount_start -o symlinks=deny
	thread
	make_traps
	same "$(sandbox 'echo x > uploads/x; ln -s ../uploads/x outputs/good')" ''
	same "$(ls -A outputs)" ''
	same "$(find . -type l)" ''
	is ENOENT lstat outputs/good
	is ENOENT open outputs/victim O_RDONLY
	is ENOENT readlink outputs/etc
	same "$(cat uploads/x)" x
	same "$(cat "$T/victim")" secret
}

@test "-o symlinks=raw shows them as they are" {
	mount_start -o symlinks=raw
	thread
	make_traps
	same "$(readlink outputs/victim)" "$T/victim"
	same "$(cat outputs/victim)" secret
	same "$(readlink outputs/far)" ../../../..
	ln -s /anywhere workspace/l
	same "$(readlink workspace/l)" /anywhere
}

@test ".ctl is never come upon, and always there" {
	mount_start
	thread
	echo x >uploads/f
	same "$(ls -a "$M")" $'.\n..\nREADME\nthreads'
	same "$(ls -a)" $'.\n..\noutputs\nuploads\nworkspace'
	same "$(find "$M" -name '.ctl*')" ''
	same "$(tar -cf - . | tar -tf - | sort)" $'./\n./outputs/\n./uploads/\n./uploads/f\n./workspace/'
	cp -r "$W" "$T/out"
	same "$(find "$T/out" | wc -l)" 5
	same "$(rsync -an --list-only ./ | grep -c ctl)" 0 || true
	same "$(grep -rl x .)" ./uploads/f
	same "$(echo .c*)" '.c*'
	for file in "$M/.ctl/status" "$M/.ctl/status.json" "$M/.ctl/metrics" "$M/.ctl/config" \
		.ctl/status .ctl/status.json .ctl/exit_code .ctl/transfers; do
		cat "$file" >/dev/null
		same "$file $(stat -c '%F %s' "$file")" "$file regular empty file 0"
	done
	jq -e . "$M/.ctl/status.json" .ctl/status.json >/dev/null
	# what is ours is not to be moved, removed or made
	is EPERM rename .ctl ctl
	is EPERM rename uploads .ctl
	is EPERM unlink .ctl/exec
	is EPERM open .ctl/new 'O_WRONLY|O_CREAT'
	is EPERM mkdir .ctl/new
	is EPERM rename .ctl/exec uploads/exec
	is EPERM unlink "$M/README"
	is EPERM open "$M/new" 'O_WRONLY|O_CREAT'
	is EPERM mkdir "$M/new"
	is EPERM rmdir "$M/threads"
	is ENOENT stat .ctl/none
	is EEXIST mkdir .ctl
}

@test "a sandbox with a .ctl of its own does not get in the way" {
	mount_start
	thread
	same "$(sandbox 'echo evil > .ctl; ls -A')" $'.ctl\noutputs\nuploads\nworkspace'
	same "$(ls -A)" $'outputs\nuploads\nworkspace'
	same "$(sandbox 'echo still')" still
	same "$(sandbox 'rm .ctl; mkdir .ctl; echo evil > .ctl/exec; ls .ctl')" exec
	same "$(ls -A)" $'outputs\nuploads\nworkspace'
	same "$(sandbox 'echo still')" still
	# deeper it is a name as any other
	mkdir workspace/.ctl
	echo x >workspace/.ctl/exec
	same "$(find . -name exec)" ./workspace/.ctl/exec
	same "$(sandbox 'cat workspace/.ctl/exec')" x
}

@test "-o ctl=visible lists it" {
	mount_start -o ctl=visible
	thread
	same "$(ls -A "$M")" $'.ctl\nREADME\nthreads'
	same "$(ls -A)" $'.ctl\noutputs\nuploads\nworkspace'
	for name in exec exit_code release destroy status status.json events transfers jobs; do
		same "$(find .ctl -maxdepth 1 -name "$name")" ".ctl/$name"
	done
	same "$(ls "$M/.ctl")" $'config\nmetrics\nrecover\nstatus\nstatus.json'
}

# Names that people and attackers make, byte by byte, from both sides of a mount.

load ../lib/mount

setup() {
	export LC_ALL=C
	setup_mount
	thread
	NAMES=(' ' ' leading' 'trailing ' 'two  blanks' $'new\nline' $'\n' $'tab\tback\b' $'\e[31mred'
		"it's" '"quoted"' "'" '`id`' '$(id)' '${HOME}' '$HOME' 'a;b' 'a&b' 'a|b' '>' '<x>' '*' '?' '[a]'
		'{a,b}' '~' '!' '#x' '%00' '%2e%2e' 'a%20b' 'a+b' 'a=b' 'a,b' 'a:b' 'a@b' '\' 'back\slash' '\n' '\\'
		'-' '-rf' '--help' '...' '.hidden' '..x' 'x.' $'caf\xc3\xa9' $'\xe6\x97\xa5\xe6\x9c\xac' $'\xf0\x9f\x98\x80'
		$'e\xcc\x81' $'\xff' $'\xfe\xff' $'a\xc3' $'\xed\xa0\x80' $'\xc0\xaf' $'\x7f' $'\x01' $'cr\r' 'nul' 'CON' 'a"b\c'
		"$(printf 'l%.0s' {1..255})" "$(printf '\xc3\xa9%.0s' {1..127})" "$(printf '\xff%.0s' {1..255})")
}

teardown() {
	teardown_mount
}

# expected [SUFFIX]: all names, as listed does it.
expected() {
	printf '%s\0' "${NAMES[@]}" | sort -z | od -An -c
}

listed() {
	find "$1" -mindepth 1 -maxdepth 1 -printf '%f\0' | sort -z | od -An -c
}

# Of the same names: what is in each is its place in the list.
check_contents() {
	local i

	for i in "${!NAMES[@]}"; do
		same "$i $(cat "$1/${NAMES[i]}")" "$i $i"
	done
}

@test "made through the mount, seen by both" {
	for i in "${!NAMES[@]}"; do
		echo "$i" >"workspace/${NAMES[i]}"
	done
	diff <(listed workspace) <(expected)
	check_contents workspace
	same "$(sandbox 'find workspace -mindepth 1 -printf "%f\0" | sort -z | od -An -c')" "$(expected)"
	same "$(sandbox 'cat workspace/* workspace/.[!.]* workspace/..?* | sort -n')" "$(seq 0 $((${#NAMES[@]} - 1)))"
	cp -r workspace "$T/out"
	diff <(listed "$T/out") <(expected)
	check_contents "$T/out"
	for name in "${NAMES[@]}"; do
		rm -- "workspace/$name"
	done
	same "$(sandbox 'ls -A workspace')" ''
}

@test "made in the sandbox, read, renamed and removed through the mount" {
	script=
	for i in "${!NAMES[@]}"; do
		printf -v script '%secho %d > workspace/%q\n' "$script" "$i" "${NAMES[i]}"
	done
	same "$(sandbox "$script")" ''
	diff <(listed workspace) <(expected)
	check_contents workspace
	for i in "${!NAMES[@]}"; do
		mv -- "workspace/${NAMES[i]}" "outputs/${NAMES[i]}"
	done
	same "$(ls -A workspace)" ''
	diff <(listed outputs) <(expected)
	check_contents outputs
	same "$(sandbox 'find outputs -mindepth 1 -printf "%f\0" | sort -z | od -An -c')" "$(expected)"
	rm -r outputs/* outputs/.[!.]* outputs/..?*
	same "$(sandbox 'ls -A outputs')" ''
}

@test "of directories and links, and everything that can be done to them" {
	for name in "${NAMES[@]}"; do
		mkdir "workspace/$name"
		ln -s -- "$name" "workspace/$name/${name:0:255}"
		same "$(readlink "workspace/$name/$name"; echo .)" "$name"$'\n.'
		echo x >"workspace/$name/f"
		chmod 0600 "workspace/$name/f"
		touch -d @1000000000 "workspace/$name/f"
		truncate -s 3 "workspace/$name/f"
		ln "workspace/$name/f" "workspace/$name/g"
		echo y >>"workspace/$name/g"
		same "$(stat -c '%a %h %s' "workspace/$name/f")" '600 2 5'
	done
	diff <(listed workspace) <(expected)
	same "$(sandbox 'find workspace -name g -size 5c -printf x | wc -c')" ${#NAMES[@]}
	rm -r workspace/* workspace/.[!.]* workspace/..?*
	same "$(sandbox 'ls -A workspace')" ''
}

@test "too long ones, and paths as long as they get" {
	long=$(printf 'x%.0s' {1..256})
	is ENAMETOOLONG mkdir "workspace/$long"
	is ENAMETOOLONG open "workspace/$long" 'O_WRONLY|O_CREAT'
	is ENAMETOOLONG stat "workspace/$long"
	is ENAMETOOLONG symlink x "workspace/$long"
	touch workspace/short
	is ENAMETOOLONG rename workspace/short "workspace/$long"
	is ENAMETOOLONG link workspace/short "workspace/$long"
	# deeper than PATH_MAX from here, one step at a time
	cd workspace
	for _ in {1..12}; do
		mkdir "${long:0:250}"
		cd "${long:0:250}"
	done
	echo deep >f
	same "$(cat f)" deep
	mv f g
	rm g
	cd "$W"
	rm -r workspace/x*
	same "$(sandbox 'ls -A workspace')" short
}

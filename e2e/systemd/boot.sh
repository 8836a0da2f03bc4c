# Makes a small machine out of fresh namespaces and becomes its systemd.
#
# It runs as process 1 of new mount, pid, uts, ipc and net namespaces. Arguments:
#   $1  an empty directory, the machine's root
#   $2  the host's terminal that is the machine's console
#   $3  the unit to boot to
#   $4… read-only or read-write binds, each "ro|rw:HOST:MACHINE", and images to mount, each "TYPE,OPTIONS:HOST:MACHINE"
# CGROUPS names the machine's own cgroups, one "MOUNTPOINT:FSTYPE:OPTIONS:DIRECTORY" a word.
set -eu
root=$1 console=$2 target=$3
shift 3

# The cgroup namespace is made from where the process is, so it moves first.
if [ -z "${IN_CGROUP_NAMESPACE-}" ]; then
	for cgroup in $CGROUPS; do
		echo 0 >"${cgroup##*:}/cgroup.procs"
	done
	export IN_CGROUP_NAMESPACE=1
	exec unshare --cgroup sh -eu "$0" "$root" "$console" "$target" "$@"
fi

bind() { # bind ro|rw HOST MACHINE
	if [ -d "$2" ]; then
		mkdir -p "$root$3"
	else
		mkdir -p "$root${3%/*}"
		[ -e "$root$3" ] || : >"$root$3"
	fi
	mount --bind "$2" "$root$3"
	[ "$1" = rw ] || mount -o "remount,bind,$1" "$root$3"
}

node() { # node PATH TYPE MAJOR MINOR
	mknod -m 0666 "$root/dev/$1" "$2" "$3" "$4"
}

mount --make-rprivate /
mount -t tmpfs -o mode=0755 machine "$root"
mount --make-private "$root"
cd "$root"

bind ro /usr /usr
# What is installed on the host by hand is not in the machine, and what a test binds there has a place.
mount -t tmpfs -o mode=0755 local usr/local
mkdir usr/local/bin usr/local/sbin
for dir in bin sbin lib lib64; do
	[ ! -d "/usr/$dir" ] || ln -s "usr/$dir" "$dir"
done
mkdir etc root run tmp var var/lib var/log var/tmp dev proc sys
chmod 0700 root
chmod 1777 tmp var/tmp
mount -t tmpfs -o mode=0755 run run
mkdir run/lock
ln -s ../run var/run

mount -t tmpfs -o mode=0755 dev dev
node null c 1 3
node zero c 1 5
node full c 1 7
node random c 1 8
node urandom c 1 9
node tty c 5 0
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=0666,mode=0620 devpts dev/pts
mount -t tmpfs -o mode=1777 shm dev/shm
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
ln -s /proc/self/fd/0 dev/stdin
ln -s /proc/self/fd/1 dev/stdout
ln -s /proc/self/fd/2 dev/stderr
bind rw "$console" /dev/console

mount -t proc proc proc
mount -t sysfs -o ro sysfs sys
mount -t tmpfs -o mode=0755 cgroups sys/fs/cgroup 2>/dev/null || true
for cgroup in $CGROUPS; do
	point=${cgroup%%:*} rest=${cgroup#*:}
	type=${rest%%:*} rest=${rest#*:}
	mkdir -p "$root$point"
	mount -t "$type" -o "${rest%%:*}" cgroup "$root$point"
done

# The users that systemd's own units and the bus ask for.
cat >etc/passwd <<-END
	root:x:0:0:root:/root:/bin/sh
	messagebus:x:100:102::/nonexistent:/usr/sbin/nologin
	nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin
END
cat >etc/group <<-END
	root:x:0:
	adm:x:4:
	tty:x:5:
	messagebus:x:102:
	systemd-journal:x:999:
	nogroup:x:65534:
END
ln -s ../usr/lib/os-release etc/os-release
echo machine >etc/hostname
tr -d - </proc/sys/kernel/random/uuid >etc/machine-id
[ ! -e /etc/ld.so.cache ] || cp /etc/ld.so.cache etc/
[ ! -d /etc/alternatives ] || cp -a /etc/alternatives etc/
mkdir -p etc/systemd/system etc/systemd/journald.conf.d
printf '[Journal]\nStorage=volatile\n' >etc/systemd/journald.conf.d/machine.conf
# What belongs to the host's kernel, hardware and terminals, and not to the machine.
for unit in systemd-sysctl.service systemd-binfmt.service systemd-random-seed.service \
	systemd-remount-fs.service systemd-machine-id-commit.service systemd-firstboot.service \
	systemd-udevd.service systemd-udev-trigger.service systemd-hwdb-update.service \
	systemd-sysusers.service systemd-timesyncd.service ldconfig.service \
	systemd-update-utmp.service proc-sys-fs-binfmt_misc.automount dev-hugepages.mount \
	sys-kernel-config.mount sys-kernel-debug.mount sys-kernel-tracing.mount sys-fs-fuse-connections.mount; do
	ln -s /dev/null "etc/systemd/system/$unit"
done

for entry in "$@"; do
	paths=${entry#*:}
	how=${entry%%:*}
	case $how in
	ro | rw) bind "$how" "${paths%%:*}" "${paths#*:}" ;;
	*)
		mkdir -p "$root${paths#*:}"
		mount -t "${how%%,*}" -o "loop,${how#*,}" "${paths%%:*}" "$root${paths#*:}"
		;;
	esac
done

mkdir old
pivot_root . old
cd /
umount -l /old
rmdir /old
mount --make-rshared /
ip link set lo up 2>/dev/null || true
exec env -i container=seedbed-e2e PATH=/usr/sbin:/usr/bin LANG=C.UTF-8 \
	/usr/lib/systemd/systemd --system --unit="$target" --log-target=console </dev/null >/dev/console 2>&1

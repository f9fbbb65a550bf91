#!/bin/sh
# Run a command in a small virtual machine that has cgroups v2 with the controllers memory and pids:
#
#     tests/execution/in_vm.sh python -m pytest -q tests/execution/test_cgroup.py
#
# This is for machines whose own control groups cannot be used. It is not part of `make test` or of CI. The command runs
# as root and sees the files of this machine, except /tmp. What it writes stays in the memory of the virtual machine and
# is lost at the end. Its control group is part of a group that belongs to the user nobody, as systemd would delegate it:
#
#     /sys/fs/cgroup/delegated           owned by nobody, with both controllers for its parts
#     /sys/fs/cgroup/delegated/session   the group of the command
#
# The processor is emulated, and the clock of the virtual machine counts its instructions (8 ns each). So time limits do
# not depend on how busy this machine is, and waiting takes no time.
#
# The exit status is that of the command. It needs QEMU, a static busybox, cpio, and a kernel with its modules:
#
#     apt-get install qemu-system-x86 busybox-static cpio kmod
#     apt-get download linux-image-6.1.0-50-amd64 && dpkg-deb -x linux-image-*.deb kernel
#     KERNEL=kernel tests/execution/in_vm.sh COMMAND...
#
# Variables: KERNEL is the folder with boot/ and lib/modules/ (default: /). CORES (1) and MEGABYTES (2048) are the size
# of the machine. With DELEGATE=no the command runs in the machine's own group, which belongs to root.
set -eu
kernel=$(ls "${KERNEL:-}"/boot/vmlinuz-* | tail -n 1)
version=${kernel##*/vmlinuz-}
modules="${KERNEL:-}/lib/modules/$version"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/initrd/bin" "$work/initrd/modules"
cp "$(command -v busybox)" "$work/initrd/bin/busybox"

# The modules in the order in which they must be loaded: each after those that it needs.
[ -e "$modules/modules.dep" ] || depmod -b "${KERNEL:-/}" "$version"
for name in virtio_pci 9pnet_virtio 9p overlay; do
    line=$(grep "/$name\.ko[^:]*:" "$modules/modules.dep") || continue # it is part of the kernel itself
    for file in $(echo "${line#*:}" | awk '{ for (i = NF; i > 0; i--) print $i }') "${line%%:*}"; do
        [ -e "$work/initrd/modules/${file##*/}" ] && continue
        cp "$modules/$file" "$work/initrd/modules/"
        echo "${file##*/}" >> "$work/initrd/modules/order"
    done
done

# The command with its folder and environment, as a script.
{
    export -p
    printf "cd '%s'\n" "$PWD"
    for word in "$@"; do printf "'%s' " "$(printf %s "$word" | sed "s/'/'\\\\''/g")"; done
} > "$work/command.sh"

# The first process of the machine: it mounts the files of this machine, and memory over them for what is written.
cat > "$work/initrd/init" << 'END'
#!/bin/busybox sh
busybox mkdir -p /proc /host /memory /new
busybox mount -t proc proc /proc
while read -r file; do busybox insmod "/modules/$file"; done < /modules/order
busybox mount -t 9p -o trans=virtio,version=9p2000.L,ro,cache=loose,msize=262144 host /host
busybox mount -t tmpfs -o size=50% tmpfs /memory
busybox mkdir /memory/upper /memory/work
busybox mount -t overlay -o lowerdir=/host,upperdir=/memory/upper,workdir=/memory/work overlay /new
busybox umount /proc
busybox mount -t proc proc /new/proc
busybox mount -t sysfs sysfs /new/sys
busybox mount -t cgroup2 cgroup2 /new/sys/fs/cgroup
busybox mount -t devtmpfs devtmpfs /new/dev
busybox mkdir -p /new/dev/shm
busybox mount -t tmpfs tmpfs /new/dev/shm
busybox mount -t tmpfs tmpfs /new/tmp
busybox ifconfig lo 127.0.0.1
busybox chmod 711 /new/root # only in memory: an ordinary user may then start an interpreter that is installed there
busybox cp /start.sh /command.sh /new/dev/shm
exec busybox switch_root /new /bin/sh /dev/shm/start.sh
END

# The second one: it makes the groups and starts the command in them.
{
    echo "delegate=${DELEGATE:-yes}"
    cat << 'END'
cd /sys/fs/cgroup
echo "+memory +pids" > cgroup.subtree_control
if [ "$delegate" = yes ]; then
    mkdir -p delegated/session
    echo "+memory +pids" > delegated/cgroup.subtree_control
    for group in delegated delegated/session; do
        (cd "$group" && chown 65534:65534 . cgroup.procs cgroup.subtree_control cgroup.threads)
    done
    sh -c 'echo $$ > delegated/session/cgroup.procs && exec sh /dev/shm/command.sh'
else
    sh /dev/shm/command.sh
fi
echo $? > /dev/ttyS1
echo o > /proc/sysrq-trigger
sleep 60
END
} > "$work/initrd/start.sh"
chmod +x "$work/initrd/init"
mv "$work/command.sh" "$work/initrd"
(cd "$work/initrd" && find . | cpio -o -H newc --quiet | gzip -1 > "$work/initrd.gz")

qemu-system-x86_64 -accel tcg -cpu max -smp "${CORES:-1}" -m "${MEGABYTES:-2048}" -display none -no-reboot \
    -kernel "$kernel" -initrd "$work/initrd.gz" -append "console=ttyS0 quiet loglevel=3 panic=-1" \
    -icount shift=3,sleep=off \
    -virtfs local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap \
    -serial stdio -serial "file:$work/status" -monitor none < /dev/null
exit "$(tr -dc 0-9 < "$work/status")"

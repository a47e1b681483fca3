#!/usr/bin/env bash
# Makes what a guest boots, from Debian packages: a kernel, and a file system in memory with busybox, iperf3 and the drivers of
# virtio. guests/image.sh DIRECTORY leaves `vmlinuz` and `initrd` there, or exits with 77 and says what is missing.
set -euo pipefail
out=$1
[ ! "$out/initrd" -nt "$0" ] || exit 0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
missing() { echo "SKIPPED: $*"; exit 77; }
for program in busybox cpio depmod iperf3 qemu-system-x86_64; do
    command -v "$program" > /dev/null || missing "$program is not installed (Debian: busybox-static, cpio, kmod, iperf3, qemu-system-x86)"
done

package=$(apt-cache depends linux-image-cloud-amd64 | awk '/Depends: linux-image-[0-9]/ { print $2; exit }')
[ -n "$package" ] || missing "apt knows no linux-image-cloud-amd64 (apt-get update)"
(cd "$work" && apt-get -q download "$package" > apt.log 2>&1) || missing "apt-get download $package: $(tail -1 "$work/apt.log")"
dpkg-deb -x "$work"/linux-image*.deb "$work/package"
version=$(basename "$work"/package/lib/modules/*)

root=$work/root
mkdir -p "$root"/{bin,dev,proc,sys,tmp,lib/modules/"$version"}
cp "$(command -v busybox)" "$root/bin/busybox"
# iperf3 and the libraries that it is linked with, where it looks for them.
cp "$(command -v iperf3)" "$root/bin/iperf3"
ldd "$(command -v iperf3)" | grep -o '/[^ ]*' | while read -r library; do
    mkdir -p "$root$(dirname "$library")"
    cp -L "$library" "$root$library"
done
modules=$work/package/lib/modules/$version
for module in virtio virtio_ring virtio_mmio virtio_pci virtio_pci_legacy_dev virtio_pci_modern_dev virtio_net failover net_failover; do
    find "$modules" -name "$module.ko*" -exec cp {} "$root/lib/modules/$version/" \;
done
cp "$modules"/modules.{order,builtin} "$root/lib/modules/$version/"
depmod -b "$root" "$version"

# A shell on the serial line. Each line is a command; its output ends with the line `= CODE`.
cat > "$root/init" <<'INIT'
#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
modprobe virtio_pci; modprobe virtio_mmio; modprobe virtio_net
ip link set lo up
exec < /dev/ttyS0 > /dev/ttyS0 2>&1
stty -echo -icrnl -onlcr 2>/dev/null
echo "= ready"
while read -r line; do
    (eval "$line")
    echo "= $?"
done
INIT
chmod +x "$root/init"
mkdir -p "$out"
cp "$work/package/boot/vmlinuz-$version" "$out/vmlinuz"
(cd "$root" && find . | cpio -o -H newc --quiet | gzip -1) > "$work/initrd"
mv "$work/initrd" "$out/initrd"

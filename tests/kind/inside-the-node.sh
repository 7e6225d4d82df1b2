#!/bin/bash
# Runs in the root file system of a node image, once, when it is made: what kind's own image build does there, and what
# a machine with cgroup v1, without CAP_SYS_RESOURCE and without kindnetd needs instead.
set -eu

# A container's systemd starts what a node needs, and nothing else.
find /lib/systemd/system/sysinit.target.wants/ -name systemd-tmpfiles-setup.service -delete
rm -f /lib/systemd/system/multi-user.target.wants/* /etc/systemd/system/*.wants/* \
    /lib/systemd/system/local-fs.target.wants/* /lib/systemd/system/sockets.target.wants/*udev* \
    /lib/systemd/system/sockets.target.wants/*initctl* /lib/systemd/system/basic.target.wants/*
echo ReadKMsg=no >> /etc/systemd/journald.conf
ln -sf /usr/lib/systemd/systemd /sbin/init
systemctl -q enable kubelet.service containerd.service undo-mount-hacks.service
systemctl -q mask systemd-binfmt.service

# containerd: kind's hook for product files, no limits that can't be set here, cgroups as the machine has them.
hook='{"path": "/kind/bin/mount-product-files.sh"}'
ctr oci spec | jq ".hooks.createContainer += [$hook] | del(.process.rlimits)" > /etc/containerd/cri-base.json
sed -i 's/restrict_oom_score_adj = false/restrict_oom_score_adj = true/; s/SystemdCgroup = true/SystemdCgroup = false/' \
    /etc/containerd/config.toml
ln -sf /usr/bin/containerd /usr/bin/containerd-shim-runc-v2 /usr/local/bin/
ln -sf /usr/lib/cni/{host-local,loopback,ptp,portmap} /opt/cni/bin/

# containerd 1.6 has no "ctr info", which `kind build node-image` asks for.
cat > /usr/local/bin/ctr <<'CTR'
#!/bin/sh
[ "$1" = info ] && exec /usr/bin/ctr version
exec /usr/bin/ctr "$@"
CTR
chmod 755 /usr/local/bin/ctr

# The pods' network: containerd writes this file when the kubelet tells it the node's range of addresses.
cat >> /etc/containerd/config.toml <<'TOML'
  [plugins."io.containerd.grpc.v1.cri".cni]
    conf_template = "/etc/cni/ptp.conflist.template"
TOML
cat > /etc/cni/ptp.conflist.template <<'CNI'
{
  "cniVersion": "0.3.1",
  "name": "ptp",
  "plugins": [
    {
      "type": "ptp",
      "ipMasq": true,
      "ipam": {
        "type": "host-local",
        "dataDir": "/run/cni-ipam-state",
        "routes": [{"dst": "0.0.0.0/0"}],
        "ranges": [[{"subnet": "{{.PodCIDR}}"}]]
      }
    },
    {"type": "portmap", "capabilities": {"portMappings": true}}
  ]
}
CNI
rm -rf /var/cache/apt/archives/*.deb /var/lib/apt/lists/* /usr/share/doc/* /usr/share/man/* /usr/share/locale/*

package storage

import "slices"

// fhs returns the layout "fhs": the ids of the node layout where a stock Linux host has such things, after the
// Filesystem Hierarchy Standard and the defaults of containerd, kubelet, etcd and the CNI plugins. Nothing is required
// to be a mount point, the firmware's partition is left alone (its nodes stand below /var/lib/seedbed/esp), and so are
// /etc/hosts and /etc/machine-id.
func fhs() (*Layout, error) {
	node, err := declare("fhs", &Root{})
	if err != nil {
		return nil, err
	}
	l := node.moved(fhsPaths())
	l.Mounts = slices.DeleteFunc(slices.Clone(l.Mounts), func(m Mount) bool { return m.ID != "run" })
	for i := range l.Nodes {
		n := &l.Nodes[i]
		if n.Mount != "" && n.Mount != "run" {
			n.Mount = ""
		}
		switch n.ID {
		case "data":
			n.Host = true // /var/lib
		case "ephemeral.containerd":
			n.Mode = 0o711 // as containerd makes it
		case "etc.hosts", "etc.machine_id":
			n.Kind, n.Target, n.When, n.Creator, n.Mode = KindFile, "", "", CreatorOperator, 0o644
		}
	}
	l.Declaration = l.Digest()
	return l, l.Validate()
}

// fhsPaths says where the nodes stand that do not follow their parent.
func fhsPaths() map[string]string {
	return map[string]string{
		// What the operator or a package brings; containerd's configuration where its package has it.
		"system":      "/var/lib/seedbed",
		"system.conf": "/etc/containerd",

		"esp": "/var/lib/seedbed/esp",

		// data is /var/lib itself, so containerd, etcd and kubelet find their own defaults.
		"data":                         "/var/lib",
		"data.kubernetes.kubelet":      "/var/lib/kubelet",
		"data.kubernetes.kubelet.logs": "/var/log/pods",
		"data.node":                    "/var/lib/seedbed/node",
		"data.volumes":                 "/var/lib/seedbed/volumes",

		// containerd's state is its default, so its socket is where every client looks; run.containerd is the
		// directory of the shims' sockets below it.
		"ephemeral":                          "/run/seedbed",
		"ephemeral.containerd":               "/run/containerd",
		"ephemeral.containerd.client_socket": "/run/containerd/containerd.sock",
		"ephemeral.containerd.cni":           "/etc/cni/net.d",
		"ephemeral.containerd.cni_cache":     "/var/lib/cni",
		"ephemeral.containerd.ipam":          "/var/lib/cni/networks",
		"run.containerd":                     "/run/containerd/s",
	}
}

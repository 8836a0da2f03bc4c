package storage

// Root is the tree of the layout "node": the node's whole file system, as fields with tags.
//
//	dir, file  the name on disk
//	kind       fifo, socket or symlink (default: what dir or file say)
//	mode       octal (default: 0755 for directories, 0644 for files, 0600 for FIFOs and sockets)
//	target     what a symlink points to
//	creator    who makes it (default: seedbed for what Place makes, runtime for the rest)
//	secret     "true": holds key material
//	host       "true": belongs to the host, made when absent, never changed when there
//	when       "image": only in a root other than /
//	mount      the id of the mount whose mount point this is; with policy, fstype and options (comma-separated)
type Root struct {
	Directory `mode:"0755" host:"true"`

	// System is what the OS image brings and seedbed only reads.
	System    SystemDirectory    `dir:"containerd"`
	ESP       ESPDirectory       `dir:"esp" mode:"0700" mount:"esp" policy:"prefer" fstype:"vfat" options:"umask=0077"`
	Data      DataDirectory      `dir:"data" mount:"data" policy:"require" fstype:"xfs" options:"noexec"`
	Etc       EtcDirectory       `dir:"etc" host:"true"`
	Ephemeral EphemeralDirectory `dir:"ephemeral" mount:"ephemeral" policy:"make" fstype:"tmpfs" options:"nosuid,nodev"`
	// Tmp is for os.MkdirTemp and the like.
	Tmp Directory    `dir:"tmp" mode:"1777" host:"true" mount:"tmp" policy:"prefer" fstype:"tmpfs"`
	Run RunDirectory `dir:"run" host:"true" mount:"run" policy:"prefer" fstype:"tmpfs"`
}

// SystemDirectory is /containerd.
type SystemDirectory struct {
	Directory
	// Bin holds containerd, shims and runtimes; the child's PATH begins with it.
	Bin  Directory           `dir:"bin"`
	Conf SystemConfDirectory `dir:"conf"`
	// Preseed holds bundles, in one folder per containerd namespace.
	Preseed Directory `dir:"preseed"`
}

// SystemConfDirectory is /containerd/conf.
type SystemConfDirectory struct {
	Directory
	// Containerd is containerd's configuration, if the image brings its own.
	Containerd File `file:"config.toml" creator:"operator"`
	// Runsc is gVisor's configuration, likewise.
	Runsc File `file:"runsc.toml" creator:"operator"`
}

// ESPDirectory is the EFI system partition.
type ESPDirectory struct {
	Directory
	Metropolis ESPMetropolisDirectory `dir:"metropolis" mode:"0700"`
	EFI        EFIDirectory           `dir:"EFI"`
}

// ESPMetropolisDirectory is the node's bootstrap data.
type ESPMetropolisDirectory struct {
	Directory
	// SealedConfiguration holds the node unlock key, join key, CA and storage mode.
	SealedConfiguration  File `file:"sealed_configuration.pb" mode:"0600" secret:"true"`
	NodeParameters       File `file:"parameters.pb" mode:"0600" secret:"true"`
	ClusterDirectory     File `file:"cluster_directory.pb"`
	NetworkConfiguration File `file:"network_configuration.pb"`
}

// EFIDirectory is the firmware's tree.
type EFIDirectory struct {
	Directory
	// Boot is the default loader's directory.
	Boot       Directory              `dir:"BOOT"`
	Metropolis EFIMetropolisDirectory `dir:"metropolis"`
}

// EFIMetropolisDirectory holds the A/B images.
type EFIMetropolisDirectory struct {
	Directory
	BootA File `file:"boot-a.efi" creator:"operator"`
	BootB File `file:"boot-b.efi" creator:"operator"`
}

// DataDirectory is what persists.
type DataDirectory struct {
	Directory
	// Containerd is containerd's root: content, snapshots, bolt. containerd makes it 0700 at every start.
	Containerd Directory           `dir:"containerd" mode:"0711" tighten:"true"`
	Etcd       EtcdDirectory       `dir:"etcd" mode:"0700"`
	Kubernetes KubernetesDirectory `dir:"kubernetes"`
	Node       NodeDirectory       `dir:"node" mode:"0700"`
	// Volumes holds persistent volumes: directories or image files, with xfs project quotas.
	Volumes Directory `dir:"volumes" mode:"0700"`
}

// PKIDirectory is a certificate with its key and its authority.
type PKIDirectory struct {
	Directory
	CACertificate File `file:"ca.pem"`
	Certificate   File `file:"cert.pem"`
	Key           File `file:"cert-key.pem" mode:"0600" secret:"true"`
}

// EtcdDirectory is etcd's persistent state.
type EtcdDirectory struct {
	Directory
	PeerPKI PKIDirectory `dir:"peer_pki" mode:"0700"`
	PeerCRL File         `file:"peer_crl" mode:"0400"`
	Data    Directory    `dir:"data" mode:"0700"`
}

// KubernetesDirectory is the persistent state of Kubernetes' parts.
type KubernetesDirectory struct {
	Directory
	ClusterNetworking ClusterNetworkingDirectory `dir:"clusternet" mode:"0700"`
	CSIProvisioner    ClientDirectory            `dir:"csiprovisioner" mode:"0700"`
	Netservices       ClientDirectory            `dir:"netservices" mode:"0700"`
	// Kubelet is kubelet's --root-dir.
	Kubelet KubeletDirectory `dir:"kubelet" mode:"0750"`
}

// ClusterNetworkingDirectory is WireGuard's.
type ClusterNetworkingDirectory struct {
	Directory
	Key File `file:"private.key" mode:"0600" secret:"true"`
}

// ClientDirectory is the state of a part that is only a client of the API server.
type ClientDirectory struct {
	Directory
	PKI PKIDirectory `dir:"pki" mode:"0700"`
}

// KubeletDirectory is kubelet's root directory.
type KubeletDirectory struct {
	Directory
	PKI             PKIDirectory             `dir:"pki" mode:"0700"`
	DevicePlugins   DevicePluginsDirectory   `dir:"device-plugins" mode:"0750"`
	Logs            Directory                `dir:"logs"`
	Plugins         PluginsDirectory         `dir:"plugins" mode:"0750"`
	PluginsRegistry PluginsRegistryDirectory `dir:"plugins_registry" mode:"0750"`
}

// DevicePluginsDirectory is where device plugins register.
type DevicePluginsDirectory struct {
	Directory
	Kubelet File `file:"kubelet.sock" kind:"socket"`
}

// PluginsDirectory holds the sockets of the plugins themselves.
type PluginsDirectory struct {
	Directory
	VFS File `file:"dev.monogon.metropolis.vfs.sock" kind:"socket"`
	KVM File `file:"devices.monogon.dev_kvm.sock" kind:"socket"`
}

// PluginsRegistryDirectory is watched by kubelet for new plugins.
type PluginsRegistryDirectory struct {
	Directory
	VFSReg File `file:"dev.monogon.metropolis.vfs-reg.sock" kind:"socket"`
	KVMReg File `file:"devices.monogon.dev_kvm-reg.sock" kind:"socket"`
}

// NodeDirectory is the node's identity and roles.
type NodeDirectory struct {
	Directory
	Credentials     PKIDirectory `dir:"credentials" mode:"0700"`
	PersistentRoles File         `file:"roles.pb" mode:"0600"`
}

// EtcDirectory is the host's /etc.
type EtcDirectory struct {
	Directory
	Hosts     File `file:"hosts" kind:"symlink" target:"/ephemeral/hosts" host:"true"`
	MachineID File `file:"machine-id" kind:"symlink" target:"/ephemeral/machine-id" host:"true" when:"image"`
}

// EphemeralDirectory is what a reboot clears.
type EphemeralDirectory struct {
	Directory
	Consensus         ConsensusDirectory  `dir:"consensus" mode:"0700"`
	Containerd        ContainerdDirectory `dir:"containerd"`
	FlexvolumePlugins Directory           `dir:"flexvolume_plugins" mode:"0555"`
	Hosts             File                `file:"hosts"`
	MachineID         File                `file:"machine-id" mode:"0444"`
}

// ConsensusDirectory is etcd's runtime state.
type ConsensusDirectory struct {
	Directory
	ClientSocket   File `file:"client.sock" kind:"socket"`
	ServerLogsFIFO File `file:"server-logs.fifo" kind:"fifo"`
}

// ContainerdDirectory is containerd's runtime state.
type ContainerdDirectory struct {
	Directory
	// ClientSocket is containerd's API; it makes an undeclared client.sock.ttrpc beside it.
	ClientSocket  File `file:"client.sock" kind:"socket" mode:"0660"`
	RunscLogsFIFO File `file:"runsc-logs.fifo" kind:"fifo"`
	// Tmp is containerd's TMPDIR.
	Tmp   Directory `dir:"tmp" mode:"0700"`
	Runsc Directory `dir:"runsc" mode:"0700"`
	// IPAM holds host-local's leases.
	IPAM Directory `dir:"ipam" mode:"0700"`
	// CNI holds the rendered CNI configuration, CNICache the plugins' results.
	CNI      Directory `dir:"cni"`
	CNICache Directory `dir:"cni-cache" mode:"0700"`
}

// RunDirectory is the host's /run.
type RunDirectory struct {
	Directory
	// Containerd holds shim sockets, runc's root and FIFOs; the path is compiled into the shims.
	Containerd Directory `dir:"containerd" mode:"0711"`
}

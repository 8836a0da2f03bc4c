package systemd

import (
	"slices"
	"testing"
)

func TestParseHierarchies(t *testing.T) {
	own := parseOwn([]byte("4:memory:/jobs/7\n2:cpu,cpuacct:/\n1:name=systemd:/\n0::/jobs/7\n"))
	tests := []struct {
		name, mounts string
		want         []hierarchy
	}{
		{
			"version 1 below the own cgroup",
			"cgroup /sys/fs/cgroup/memory cgroup rw,nosuid,relatime,memory 0 0\n",
			[]hierarchy{{"/sys/fs/cgroup/memory", "cgroup", "memory", "/sys/fs/cgroup/memory/jobs/7/m"}},
		},
		{
			"two controllers in one hierarchy",
			"cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,cpu,cpuacct 0 0\n",
			[]hierarchy{{"/sys/fs/cgroup/cpu,cpuacct", "cgroup", "cpu,cpuacct", "/sys/fs/cgroup/cpu,cpuacct/m"}},
		},
		{
			"systemd's named hierarchy",
			"cgroup /sys/fs/cgroup/systemd cgroup rw,xattr,release_agent=/x,name=systemd 0 0\n",
			[]hierarchy{{"/sys/fs/cgroup/systemd", "cgroup", "name=systemd", "/sys/fs/cgroup/systemd/m"}},
		},
		{
			"version 2 at the top, where the controllers are",
			"cgroup2 /sys/fs/cgroup cgroup2 rw,nsdelegate 0 0\n",
			[]hierarchy{{"/sys/fs/cgroup", "cgroup2", "rw", "/sys/fs/cgroup/m"}},
		},
		{"no cgroup", "tmpfs /sys/fs/cgroup tmpfs rw 0 0\nproc /proc proc rw 0 0\n", nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := parseHierarchies([]byte(test.mounts), own, "m"); !slices.Equal(got, test.want) {
				t.Errorf("got %v\nwant %v", got, test.want)
			}
		})
	}
}

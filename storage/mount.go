package storage

import (
	"fmt"
	"strings"
)

// Mount is a mount point of the tree, and what is to be mounted there.
type Mount struct {
	// ID is the id of the node that is the mount point.
	ID   string `json:"id"`
	Path string `json:"path"`
	// Policy is require, make or prefer.
	Policy string `json:"policy"`
	FSType string `json:"fstype"`
	// Source is a device (/dev/…, UUID=, LABEL=, PARTUUID= or PARTLABEL=); empty for any.
	Source string `json:"source,omitempty"`
	// Options are those that the mount has to have, or gets when it is made.
	Options []string `json:"options,omitempty"`
	// Size is the least size of the file system, or the one it is made with: bytes, or with k, m, g or t times 1024.
	Size string `json:"size,omitempty"`
	// Encryption is "dm-crypt" when the file system has to stand on encrypted devices only; empty for any.
	Encryption string `json:"encryption,omitempty"`
	// State is mounted, absent or ignored; a layout has none.
	State string `json:"state,omitempty"`
}

// The mount policies.
const (
	PolicyRequire = "require" // it must be a mount point of that file system
	PolicyMake    = "make"    // it is mounted when nothing is
	PolicyPrefer  = "prefer"  // it is checked when it is mounted, and a difference is only warned about
)

// EncryptionDMCrypt is the value of [Mount.Encryption] for a file system that stands on dm-crypt.
const EncryptionDMCrypt = "dm-crypt"

// The states of a mount in a manifest.
const (
	MountMounted = "mounted" // a file system is mounted there
	MountAbsent  = "absent"  // none is
	MountIgnored = "ignored" // nobody looked
)

// MountMode says whether mount policies are looked at.
type MountMode int

// The mount modes.
const (
	MountsAuto   MountMode = iota // apply for the root /, ignore for any other
	MountsApply                   // look at the policies
	MountsIgnore                  // every directory is an ordinary one
)

// apply resolves MountsAuto for a root.
func (m MountMode) apply(root string) bool {
	return m == MountsApply || m == MountsAuto && root == "/"
}

// wanted describes the mount for a message: "xfs with noexec on dm-crypt".
func (m *Mount) wanted() string {
	words := []string{"a mount of " + m.FSType}
	if m.FSType == "" {
		words = []string{"a mount"}
	}
	if m.Source != "" {
		words = append(words, "from "+m.Source)
	}
	if len(m.Options) > 0 {
		words = append(words, "with "+strings.Join(m.Options, ","))
	}
	if m.Size != "" {
		words = append(words, "of "+m.Size)
	}
	if m.Encryption != "" {
		words = append(words, "on "+m.Encryption)
	}
	return strings.Join(words, " ")
}

// BadMount is a mount point at which the layout's policy is not met. Nothing was changed when it is reported.
type BadMount struct {
	ID     string // of the mount
	Path   string // on the host
	Policy string
	Want   string // "a mount of xfs"
	Got    string // "no mount point", "ext4 from /dev/sdb1"
	Advice string
}

// Error says what was found and what was expected.
func (b *BadMount) Error() string {
	return fmt.Sprintf("mount %s: found %s at %q: expected %s (policy %s)", b.ID, b.Got, b.Path, b.Want, b.Policy)
}

// Hint is the next step.
func (b *BadMount) Hint() string { return "nothing was changed; " + b.Advice }

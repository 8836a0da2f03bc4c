package daemon

import (
	"cmp"
	"errors"
	"io/fs"
)

// SandboxImage returns the image that CRI makes pods of by the configuration at path:
// [DefaultSandbox] where there is no file, for then seedbed renders one, and "" where the file
// leaves it to its containerd, has no CRI, or cannot be read.
//
// It is pinned_images.sandbox from version 3 on and sandbox_image before that
// (https://github.com/containerd/containerd/blob/main/docs/cri/config.md).
func SandboxImage(path string) string {
	c, err := loadConfig(Options{ConfigFile: path})
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return DefaultSandbox
	case err != nil || !c.hasCRI():
		return ""
	}
	images, _ := c.Plugins["io.containerd.cri.v1.images"].(map[string]any)
	pinned, _ := images["pinned_images"].(map[string]any)
	image, _ := pinned["sandbox"].(string)
	cri, _ := c.Plugins["io.containerd.grpc.v1.cri"].(map[string]any)
	older, _ := cri["sandbox_image"].(string)
	return cmp.Or(image, older)
}

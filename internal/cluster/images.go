// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"strings"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/infra/aws/discovery"
	"github.com/slipway-k8s/slipway/internal/infra/model"
)

// ResolveImages finds, once, the machine image of each group and checks that it fits the architecture of
// the machines. It returns the images by group; images that are wrong are an error of type [diag.Findings].
func (session *Session) ResolveImages(ctx context.Context, d *Desired) (map[string]model.Image, error) {
	if d.Images != nil {
		return d.Images, nil
	}

	want := map[string]discovery.ImageRequest{}
	path := func(g v1alpha1.InstanceGroup) string { return "instancegroup/" + g.Metadata.Name + ": spec.image" }

	for _, g := range d.Manifests.Groups {
		want[path(g)] = discovery.ImageRequest{
			Name: g.Spec.Image,
			Arch: d.Manifests.Arch(g.Spec.MachineType),
		}
	}

	found, findings, err := discovery.ResolveImages(ctx, session.Config, want, session.Env.Now())
	if err != nil {
		return nil, err
	}

	out := map[string]model.Image{}

	for _, g := range d.Manifests.Groups {
		image := found[path(g)]
		if arch := d.Manifests.Arch(g.Spec.MachineType); image.ID != "" && image.Arch != arch {
			findings.Errorf(path(g), g.Spec.Image, "use an image and a machine type of the same architecture",
				"is for %s, but %s is %s", image.Arch, g.Spec.MachineType, arch)
		}

		if strings.Contains(g.Spec.Image, "*") && image.ID != "" {
			session.Env.Notifyf(
				"%s %s is %s, %s: the newest match",
				path(g),
				g.Spec.Image,
				image.ID,
				image.Name,
			)
		}

		out[g.Metadata.Name] = model.Image{ID: image.ID, RootDevice: image.RootDevice}
	}

	if err := findings.Err(); err != nil {
		return out, err
	}

	session.Env.Warn(findings) // warnings
	d.Images = out

	return out, nil
}

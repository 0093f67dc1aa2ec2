// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
)

// validate returns all invalid fields, joined and sorted, each with its path and value.
func (d Document) validate() error {
	errs := d.validateIdentity()
	errs = append(errs, d.validateFiles()...)
	errs = append(errs, d.validateImages()...)
	errs = append(errs, d.validateNetwork()...)
	if d.Role == v1alpha1.RoleControlPlane {
		errs = append(errs, d.validateControlPlane()...)
	}

	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })

	return errors.Join(errs...)
}

func invalidField(path string, value any, hint string) error {
	return fmt.Errorf("node document: %s: %q: %s", path, fmt.Sprint(value), hint)
}

func (d Document) validateIdentity() []error {
	var out []error
	if d.APIVersion != v1alpha1.APIVersion || d.Kind != DocumentKind {
		out = append(
			out,
			invalidField(
				"apiVersion, kind",
				d.APIVersion+" "+d.Kind,
				"must be "+v1alpha1.APIVersion+" "+DocumentKind,
			),
		)
	}

	label := regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

	for path, value := range map[string]string{"cluster": d.Cluster, "group": d.Group} {
		if !label.MatchString(value) {
			out = append(out, invalidField(path, value, "must be a DNS label"))
		}
	}

	if d.Role != v1alpha1.RoleControlPlane && d.Role != v1alpha1.RoleWorker {
		out = append(out, invalidField("role", d.Role, "must be ControlPlane or Worker"))
	}

	if !regexp.MustCompile(`^1\.\d{1,3}\.\d{1,3}$`).MatchString(d.KubernetesVersion) {
		out = append(out, invalidField("kubernetesVersion", d.KubernetesVersion, "must be like 1.36.3"))
	}

	if c := d.NodeController; c != "" && !d.HasExternalNodeController() {
		out = append(out, invalidField("nodeController", c, "must be "+v1alpha1.NodeControllerExternal+" or left out"))
	}

	return out
}

func (d Document) validateFiles() []error {
	var out []error
	for i, f := range d.Files {
		path := fmt.Sprintf("files[%d]", i)
		if f.Name == "" || strings.ContainsAny(f.Name, "/\\") || f.Name[0] == '.' {
			out = append(out, invalidField(path+".name", f.Name, "must be a plain file name"))
		}

		if !isSHA256(f.SHA256) {
			out = append(out, invalidField(path+".sha256", f.SHA256, "must be 64 lower-case hex digits"))
		}

		if f.Form != FormBinary && f.Form != FormArchive {
			out = append(out, invalidField(path+".form", f.Form, "must be binary or archive"))
		}

		scheme, _, _ := strings.Cut(f.URL, "://")
		if !slices.Contains([]string{"https", "http", "s3"}, scheme) {
			out = append(out, invalidField(path+".url", f.URL, "must be an https, http or s3 URL"))
		}
	}

	return out
}

// isSHA256 reports whether s is a SHA-256 in lower-case hex. It avoids a regular expression because
// planning a cluster with many groups checks hundreds of hashes.
func isSHA256(s string) bool {
	const digits = 64
	return len(s) == digits && strings.Trim(s, "0123456789abcdef") == ""
}

func (d Document) validateImages() []error {
	var out []error
	for _, name := range slices.Sorted(maps.Keys(d.Images)) {
		if !isPinned(d.Images[name]) {
			out = append(out, invalidField(
				"images."+name,
				d.Images[name],
				"must be an image with its digest, such as registry.k8s.io/pause:3.10.1@sha256:<64 hex digits>; a tag can be moved",
			))
		}
	}

	return out
}

// isPinned reports whether an image is named by the digest of its content.
func isPinned(image string) bool {
	name, digest, ok := strings.Cut(image, "@sha256:")
	return ok && name != "" && isSHA256(digest)
}

// validateCNI checks the network of pods.
func (d Document) validateCNI() []error {
	var out []error
	if b := d.Network.FlannelBackend; b != "" && b != v1alpha1.FlannelWireGuard {
		out = append(out, invalidField("network.flannelBackend", b, "must be "+v1alpha1.FlannelWireGuard+" or left out"))
	}

	if c := d.Network.CNI; c != "" && !d.HasVPCPods() && !d.HasNetworkOfChannel() {
		out = append(out, invalidField("network.cni", c, "must be "+v1alpha1.CNIAmazonVPC+", "+v1alpha1.CNICilium+" or left out"))
	}

	if d.HasVPCPods() && d.Kubelet.MaxPods < 1 {
		out = append(out, invalidField("kubelet.maxPods", d.Kubelet.MaxPods, "must be set if pods have addresses of the VPC"))
	}

	return out
}

func (d Document) validateNetwork() []error {
	out := d.validateCNI()

	for path, value := range map[string]string{
		"networkCIDR": d.Network.NetworkCIDR,
		"podCIDR":     d.Network.PodCIDR,
		"serviceCIDR": d.Network.ServiceCIDR,
	} {
		if _, err := netip.ParsePrefix(value); err != nil {
			out = append(out, invalidField("network."+path, value, "must be a CIDR such as 10.96.0.0/16"))
		}
	}

	for path, value := range map[string]string{
		"kubernetesIP": d.Network.KubernetesIP,
		"dnsIP":        d.Network.DNSIP,
	} {
		if _, err := netip.ParseAddr(value); err != nil {
			out = append(out, invalidField("network."+path, value, "must be an IP address"))
		}
	}

	if d.Network.DNSDomain == "" {
		out = append(out, invalidField("network.dnsDomain", "", "must be a domain such as cluster.local"))
	}

	return out
}

func (d Document) validateControlPlane() []error {
	var out []error
	if d.HasVPCPods() == (d.Network.VPCCNIRole == "") {
		out = append(out, invalidField("network.vpcCNIRole", d.Network.VPCCNIRole,
			"must be the ARN of a role with network.cni "+v1alpha1.CNIAmazonVPC+", and is left out otherwise"))
	}

	if len(d.Slots)%2 == 0 {
		out = append(out, invalidField("slots", len(d.Slots), "must be an odd number"))
	}

	seen := map[string]bool{}

	for i, s := range d.Slots {
		if s.Name == "" || seen[s.Name] || s.Member == "" || s.Host == "" || s.PeerURL == "" {
			out = append(
				out,
				invalidField(
					fmt.Sprintf("slots[%d]", i),
					s.Name,
					"must have a unique name, a member, a host, and a peerURL",
				),
			)
		}

		seen[s.Name] = true
	}

	if !strings.HasPrefix(d.Store.URL, "s3://") {
		out = append(out, invalidField("store.url", d.Store.URL, "must be s3://bucket/prefix"))
	}

	return out
}

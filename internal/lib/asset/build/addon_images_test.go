// SPDX-License-Identifier: Apache-2.0

package build //nolint:testpackage // it reads the recipes

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestAddonImagesAreThoseOfTheChannels: each image of the channels in examples has a recipe with its
// reference, and the other way round.
func TestAddonImagesAreThoseOfTheChannels(t *testing.T) {
	t.Parallel()
	b := newResolvedBuilder(t, Options{})

	b.versions["busybox"] = "1.35.0" // Debian 12's; a build asks apt
	var built []string
	for _, r := range addonImages() {
		if r.Module == vpcCNI { // of an add-on of clusters themselves
			continue
		}

		built = append(built, b.expandPattern(r.Ref, r.Module))
	}

	var wanted []string
	for _, name := range []string{
		"addons/metrics-server.yaml", "addons/local-path-provisioner.yaml", "addons/aws-cloud-controller-manager.yaml", "addons/external-dns.yaml",
		"addons/cert-manager.yaml", "addons/traefik.yaml", "addons/karpenter.yaml",
		"monitoring/prometheus.yaml", "monitoring/alertmanager.yaml", "monitoring/node-metrics.yaml",
	} {
		text, err := os.ReadFile("../../../../examples/" + name)
		if err != nil {
			t.Fatal(err)
		}

		for _, m := range regexp.MustCompile(`image: \$\{IMAGES\}(\S+)`).FindAllStringSubmatch(string(text), -1) {
			wanted = append(wanted, m[1])
		}
	}

	slices.Sort(built)
	slices.Sort(wanted)
	wanted = slices.Compact(wanted) // the manifest of node metrics has an image twice
	if got, want := strings.Join(built, "\n"), strings.Join(wanted, "\n"); got != want {
		t.Errorf("built:\n%s\nwanted by the channels:\n%s", got, want)
	}
}

// TestVPCCNIImages: the images of the Amazon VPC CNI are those that the cluster's own add-on names, with the programs that it starts.
func TestVPCCNIImages(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../machine/addon/manifests/30-amazon-vpc-cni.yaml")
	if err != nil {
		t.Fatal(err)
	}

	used := map[string]string{}
	for _, m := range regexp.MustCompile(`image: "\{\{Image:(\S+)\}\}"\n +command: \[(\S+)\]`).FindAllStringSubmatch(string(text), -1) {
		used[m[1]] = m[2]
	}

	built := map[string]string{}
	for _, r := range vpcCNIImages() {
		built[r.Name] = r.Entrypoint[0]
	}

	if !maps.Equal(used, built) {
		t.Errorf("the add-on has the images and programs %v, and %v are built", used, built)
	}
}

// TestAddonImagesAreBuiltOnRequest: the default build leaves them out.
func TestAddonImagesAreBuiltOnRequest(t *testing.T) {
	t.Parallel()
	for _, want := range []bool{false, true} {
		b := newBuilder(Options{AddonImages: want})
		requested, err := b.requestedModules()
		if err != nil {
			t.Fatal(err)
		}

		for _, name := range addonSteps() {
			if !b.optional[name] || requested[name] != want {
				t.Errorf("%s: optional %t, requested %t, want %t", name, b.optional[name], requested[name], want)
			}
		}
	}
}

// TestUpstreamVersion removes what Debian adds to a version.
func TestUpstreamVersion(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"busybox-static=1:1.35.0-4+deb12u1+b1": "1.35.0",
		"nftables=1.0.6-2+deb12u2":             "1.0.6",
		"libc6=2.36-9+deb12u10 x=1":            "2.36",
		"native=3.0":                           "3.0",
	} {
		if got := upstreamVersion(in); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}

// TestReleaseOfLibrary: the version of Prometheus' module has the release's numbers in other places.
func TestReleaseOfLibrary(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{"0.316.0": "3.16.0", "0.304.2": "3.4.2", "0.1002.3": "10.2.3", "0.54.0": "", "1.316.0": "", "0.316": "", "0.x.1": ""} {
		if got, err := releaseOfLibrary(in); got != want || (err == nil) != (want != "") {
			t.Errorf("%s: %s, %v, want %s", in, got, err, want)
		}
	}
}

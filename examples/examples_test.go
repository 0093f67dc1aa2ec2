// SPDX-License-Identifier: Apache-2.0

package examples_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/examples"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// TestExamplesAreValid checks that each example is a complete cluster with the name of its file,
// without findings.
func TestExamplesAreValid(t *testing.T) {
	for _, x := range examples.All() {
		set, fs := manifest.Parse(x.YAML)
		for _, f := range append(fs, manifest.Validate(manifest.Default(set))...) {
			t.Errorf("%s: %s", x.Name, f)
		}
		if name := set.Cluster.Metadata.Name; name != x.Name && x.Name != "ha" {
			t.Errorf("%s: the name of its cluster is %s", x.Name, name)
		}
	}
}

// TestExamplesAreDocumented checks that docs/topologies.md has exactly one row for each example,
// and no others.
func TestExamplesAreDocumented(t *testing.T) {
	doc, err := os.ReadFile("../docs/topologies.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	for line := range strings.Lines(string(doc)) {
		if strings.HasPrefix(line, "| ") && strings.Contains(line, "../examples/") {
			rows++
		}
	}
	all := examples.All()
	for _, x := range all {
		if link := fmt.Sprintf("[%s](../examples/%s.yaml)", x.Name, x.Name); strings.Count(string(doc), link) != 1 {
			t.Errorf("docs/topologies.md must have exactly one row with %s", link)
		}
	}
	if rows != len(all) {
		t.Errorf("docs/topologies.md has %d rows, the folder %d examples", rows, len(all))
	}
}

// TestChannelsAreValid checks that each channel is valid, and that the files that it names exist.
func TestChannelsAreValid(t *testing.T) {
	for _, name := range []string{"addons/channel.yaml", "addons/local-volumes.yaml", "addons/load-balancers.yaml", "addons/cloud-provider.yaml", "monitoring/channel.yaml"} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		channel, findings := manifest.ParseAddonChannel(text)
		for _, f := range findings {
			t.Errorf("%s: %s", name, f)
		}
		for _, a := range channel.Spec.Addons {
			if a.Source.Namespaces != nil {
				continue
			}
			file := a.Source.Manifest
			if a.Source.Kustomization == "." {
				file = a.Name + ".yaml"
			}
			objects, err := os.ReadFile(filepath.Join(filepath.Dir(name), file))
			if err != nil {
				t.Error(err)
			}
			for line := range strings.Lines(string(objects)) {
				if strings.Contains(line, " image: ") && !strings.Contains(line, " image: ${IMAGES}") {
					t.Errorf("%s: an image that no registry mirrors: %s", file, line)
				}
			}
			if strings.Contains(string(objects), " image: ") && !strings.Contains(string(objects), ":v"+a.Version) {
				t.Errorf("%s: no image of version %s", file, a.Version)
			}
		}
	}
}

// TestUnbuiltVolumeImagesHaveDigests: nothing here has run the images of the channel of volumes, so their content is pinned, not their tags alone.
func TestUnbuiltVolumeImagesHaveDigests(t *testing.T) {
	pinned := regexp.MustCompile(`^\s+image: \$\{IMAGES\}registry\.k8s\.io/[a-z0-9/-]+:v[0-9.]+@sha256:[0-9a-f]{64}$`)
	for _, file := range []string{"addons/aws-ebs-csi-driver.yaml", "addons/snapshot-controller.yaml"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		images := 0
		for line := range strings.Lines(string(text)) {
			if strings.Contains(line, " image: ") {
				images++
				if !pinned.MatchString(strings.TrimRight(line, "\n")) {
					t.Errorf("%s: not pinned by digest:%s", file, line)
				}
			}
		}
		if images == 0 {
			t.Errorf("%s has no image", file)
		}
	}
}

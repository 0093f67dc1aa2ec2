// SPDX-License-Identifier: Apache-2.0

package manifest_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

func TestInstanceTypes(t *testing.T) {
	for name, want := range map[string]manifest.InstanceType{
		"t3.large":  {Name: "t3.large", Arch: "amd64", VCPU: 2, MemoryMiB: 8192, Interfaces: 3, AddressesPerInterface: 12},
		"m6g.large": {Name: "m6g.large", Arch: "arm64", VCPU: 2, MemoryMiB: 8192, Interfaces: 3, AddressesPerInterface: 10},
	} {
		got, ok := manifest.FindInstanceType(name)
		if !ok || got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
	for _, name := range []string{"", "#", "t3.huge", "EC2"} {
		if got, ok := manifest.FindInstanceType(name); ok {
			t.Errorf("%q is %+v", name, got)
		}
	}
}

// TestUnknownInstanceTypes: the embedded list is a hint. A type that it lacks is a warning until EC2 describes it, and
// what EC2 says counts: the image follows the architecture.
func TestUnknownInstanceTypes(t *testing.T) {
	for name, arch := range map[string]string{
		"g6.xlarge": "amd64", "x2idn.32xlarge": "amd64", "m8gd.large": "arm64", "a1.medium": "arm64", "g5g.xlarge": "arm64",
		"im4gn.large": "arm64", "p6-b200.48xlarge": "amd64", "p6e-gb200.36xlarge": "arm64", "u-6tb1.56xlarge": "amd64",
		"u7i-12tb.224xlarge": "amd64", "m7i.metal-24xl": "amd64", "c7i-flex.large": "amd64", "m8gd.metal-48xl": "arm64",
		"mac2.metal": "amd64", "a1": "amd64",
	} {
		if got := (manifest.Set{}).Arch(name); got != arch {
			t.Errorf("%s: %s, want %s", name, got, arch)
		}
	}

	set := demo(t)
	set.Groups[1].Spec.MachineType, set.Groups[1].Spec.Image = "m8gd.large", ""
	set = manifest.Default(set)
	fs := manifest.Validate(set)
	if fs.Err() != nil || !strings.Contains(fmt.Sprint([]diag.Finding(fs)), "m8gd.large\": is not in Slipway's list") {
		t.Fatalf("findings of an unknown type: %v", fs)
	}
	if got := set.Groups[1].Spec.Image; !strings.HasSuffix(got, "arm64") {
		t.Errorf("the image is %s", got)
	}
	asked := set.UnknownTypes()
	if !slices.Equal(asked, []string{"m8gd.large"}) {
		t.Fatalf("EC2 is asked for %v", asked)
	}

	for name, c := range map[string]struct {
		described []manifest.InstanceType
		want      string
	}{
		"as the name says": {[]manifest.InstanceType{{Name: "m8gd.large", Arch: "arm64", VCPU: 2, MemoryMiB: 8192}}, ""},
		"another arch":     {[]manifest.InstanceType{{Name: "m8gd.large", Arch: "amd64", VCPU: 2, MemoryMiB: 8192}}, ""},
		"no such type":     {nil, "m8gd.large\": is not offered in this region"},
		"a Mac":            {[]manifest.InstanceType{{Name: "m8gd.large", Arch: "arm64_mac"}}, "is arm64_mac, for which there is no agent"},
	} {
		got, fs := set.WithDescribedTypes(asked, c.described)
		if (c.want == "") != (fs.Err() == nil) || !strings.Contains(fmt.Sprint([]diag.Finding(fs)), c.want) || c.want == "" && len(fs) > 0 {
			t.Errorf("%s: findings %v", name, fs)
		}
		if c.want == "" && !strings.HasSuffix(got.Groups[1].Spec.Image, c.described[0].Arch) {
			t.Errorf("%s: the image is %s", name, got.Groups[1].Spec.Image)
		}
		if strings.HasSuffix(set.Groups[1].Spec.Image, "amd64") {
			t.Errorf("%s changed the set that it was given", name)
		}
	}

	// What EC2 says of a control plane's type is checked like the list's.
	set.Groups[0].Spec.MachineType = "m9x.small"
	_, fs = set.WithDescribedTypes([]string{"m9x.small"}, []manifest.InstanceType{{Name: "m9x.small", Arch: "amd64", MemoryMiB: 512}})
	if !strings.Contains(fmt.Sprint([]diag.Finding(fs)), "has 512 MiB of memory, too little") {
		t.Errorf("findings %v", fs)
	}
}

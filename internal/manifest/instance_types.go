// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	_ "embed"
	"strconv"
	"strings"

	"github.com/slipway-k8s/slipway/internal/lib/diag"
)

//go:embed data/instance-types.txt
var instanceTypes string

// InstanceType is what is known of an EC2 instance type.
type InstanceType struct {
	Name string
	// Arch is amd64 or arm64.
	Arch string
	VCPU int
	// MemoryMiB is its memory in MiB.
	MemoryMiB int
}

// FindInstanceType looks a type up.
func FindInstanceType(name string) (InstanceType, bool) {
	// Each group asks several times, so the lines of other types are not taken apart. The first line is a comment.
	_, line, _ := strings.Cut(instanceTypes, "\n"+name+" ")
	line, _, _ = strings.Cut(line, "\n")
	f := strings.Fields(line)
	if len(f) != 3 { // architecture, vCPUs, memory
		return InstanceType{}, false
	}

	vcpu, err := strconv.Atoi(f[1])
	if err != nil {
		return InstanceType{}, false
	}

	memory, err := strconv.Atoi(f[2])

	return InstanceType{
		Name:      name,
		Arch:      f[0],
		VCPU:      vcpu,
		MemoryMiB: memory,
	}, err == nil
}

// InstanceTypeArch returns the architecture of an instance type; of an unknown one amd64.
func InstanceTypeArch(name string) string {
	if t, ok := FindInstanceType(name); ok {
		return t.Arch
	}

	return "amd64"
}

// nearestInstanceType returns the type that was perhaps meant.
func nearestInstanceType(name string) string {
	var names []string
	for line := range strings.Lines(instanceTypes) {
		if typ, _, ok := strings.Cut(line, " "); ok && typ != "#" {
			names = append(names, typ)
		}
	}

	return diag.Nearest(name, names)
}

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

// InstanceType describes an EC2 instance type.
type InstanceType struct {
	// Name such as t3.large.
	Name string
	// Arch is amd64 or arm64.
	Arch string
	// VCPU is the number of virtual CPUs.
	VCPU int
	// MemoryMiB is the memory in MiB.
	MemoryMiB int
}

// FindInstanceType returns the description of the instance type called name, and whether the
// embedded list contains it.
func FindInstanceType(name string) (InstanceType, bool) {
	// Validation looks types up often, so only the matching line is parsed. The first line of the
	// list is a comment.
	_, line, _ := strings.Cut(instanceTypes, "\n"+name+" ")
	line, _, _ = strings.Cut(line, "\n")
	fields := strings.Fields(line)
	if len(fields) != 3 { // architecture, vCPUs, memory
		return InstanceType{}, false
	}

	vcpu, err := strconv.Atoi(fields[1])
	if err != nil {
		return InstanceType{}, false
	}

	memory, err := strconv.Atoi(fields[2])

	return InstanceType{
		Name:      name,
		Arch:      fields[0],
		VCPU:      vcpu,
		MemoryMiB: memory,
	}, err == nil
}

// InstanceTypeArch returns the architecture of an instance type, and amd64 for an unknown type.
func InstanceTypeArch(name string) string {
	if t, ok := FindInstanceType(name); ok {
		return t.Arch
	}

	return "amd64"
}

// InstanceTypeNames returns the names of the known instance types that begin with prefix.
func InstanceTypeNames(prefix string) []string {
	var names []string
	for line := range strings.Lines(instanceTypes) {
		if typ, _, ok := strings.Cut(line, " "); ok && typ != "#" && strings.HasPrefix(typ, prefix) {
			names = append(names, typ)
		}
	}

	return names
}

// nearestInstanceType returns the known type whose name is most similar, or "".
func nearestInstanceType(name string) string { return diag.Nearest(name, InstanceTypeNames("")) }

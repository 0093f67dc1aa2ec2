// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	_ "embed"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
)

//go:embed data/instance-types.txt
var instanceTypes string

// InstanceType describes an EC2 instance type.
type InstanceType struct {
	// Name such as t3.large.
	Name string
	// Arch is amd64 or arm64; another one, such as arm64_mac, cannot run Slipway's images.
	Arch string
	// VCPU is the number of virtual CPUs.
	VCPU int
	// MemoryMiB is the memory in MiB.
	MemoryMiB int
	// Interfaces is the largest number of network interfaces. Zero is not known.
	Interfaces int
	// AddressesPerInterface is the largest number of private IPv4 addresses of an interface. Zero
	// is not known.
	AddressesPerInterface int
	// Details are facts that only EC2 knows. They are zero for types of the embedded list.
	Details InstanceTypeDetails
}

// InstanceTypeDetails are facts about an instance type that EC2 described.
type InstanceTypeDetails struct {
	// Nitro is set for types on AWS's Nitro system, virtual or bare metal, whose volumes are NVMe
	// devices.
	Nitro bool
	// GPUs are the GPUs, such as "1 NVIDIA L4"; empty if there are none.
	GPUs string
}

// String describes the type in one line.
func (t InstanceType) String() string {
	out := fmt.Sprintf("%s: %s, %d vCPUs, %d MiB", t.Name, t.Arch, t.VCPU, t.MemoryMiB)
	if t.Interfaces > 0 {
		out += fmt.Sprintf(", %d network interfaces of %d addresses", t.Interfaces, t.AddressesPerInterface)
		if !t.Details.Nitro {
			out += ", no Nitro system"
		}
	}

	if t.Details.GPUs != "" {
		out += ", " + t.Details.GPUs + " (Slipway installs no driver)"
	}

	return out
}

// FindInstanceType returns the description of the instance type called name, and whether the
// embedded list contains it.
func FindInstanceType(name string) (InstanceType, bool) {
	// Validation looks types up often, so only the matching line is parsed. The first line of the
	// list is a comment.
	_, line, _ := strings.Cut(instanceTypes, "\n"+name+" ")
	line, _, _ = strings.Cut(line, "\n")
	fields := strings.Fields(line)
	if len(fields) != 5 { // architecture, vCPUs, memory, interfaces, addresses
		return InstanceType{}, false
	}

	var numbers [4]int
	for i, field := range fields[1:] {
		n, err := strconv.Atoi(field)
		if err != nil {
			return InstanceType{}, false
		}

		numbers[i] = n
	}

	return InstanceType{
		Name:      name,
		Arch:      fields[0],
		VCPU:      numbers[0],
		MemoryMiB: numbers[1],

		Interfaces:            numbers[2],
		AddressesPerInterface: numbers[3],
	}, true
}

// FindInstanceType returns what EC2 described of an instance type, else the embedded list's line of
// it.
func (s Set) FindInstanceType(name string) (InstanceType, bool) {
	for _, t := range s.DescribedTypes {
		if t.Name == name {
			return t, true
		}
	}

	return FindInstanceType(name)
}

// Arch returns the architecture of an instance type. That of a type which neither EC2 described nor
// the embedded list contains is derived from its name.
func (s Set) Arch(name string) string {
	if t, ok := s.FindInstanceType(name); ok {
		return t.Arch
	}

	return archOfName(name)
}

// InstanceTypeArch returns the architecture of an instance type. That of a type which the embedded
// list does not contain is derived from its name.
func InstanceTypeArch(name string) string { return Set{}.Arch(name) }

// The processor architectures for which Slipway has an agent.
const (
	archAMD64 = "amd64"
	archARM64 = "arm64"
)

// archOfName derives the architecture from the name of an instance type: arm64 if the letters after
// the generation contain g, for AWS's Graviton and NVIDIA's Grace, and for the first Graviton, a1.
// Source: https://docs.aws.amazon.com/ec2/latest/instancetypes/instance-type-names.html
func archOfName(name string) string {
	parts := instanceTypePattern().FindStringSubmatch(name)
	if parts != nil && (strings.Contains(parts[2], "g") || parts[1] == "a" && parts[2] == "") {
		return archARM64
	}

	return archAMD64
}

// instanceTypePattern matches the names of instance types: series, generation, options, a dot and
// the size. AWS's names of sizes are fixed words and multiples of xlarge. Source: as for
// archOfName.
func instanceTypePattern() *regexp.Regexp {
	return regexp.MustCompile(
		`^([a-z]+)(?:-?\d+)([a-z0-9-]*)\.(?:nano|micro|small|medium|large|(?:\d{1,3})?xlarge|metal(?:-\d{1,3}xl)?)$`,
	)
}

// UnknownTypes returns the sorted machine types of the groups that the embedded list does not
// contain: EC2 must describe them.
func (s Set) UnknownTypes() []string {
	var out []string
	for _, g := range s.Groups {
		for _, name := range MachineTypes(g.Spec) {
			if _, ok := FindInstanceType(name); !ok {
				out = append(out, name)
			}
		}
	}

	slices.Sort(out)

	return slices.Compact(out)
}

// WithDescribedTypes returns the set with what EC2 described of the types asked for, and the
// findings that follow. A group that uses an image of a known distribution gets the one for the
// described architecture.
func (s Set) WithDescribedTypes(asked []string, described []InstanceType) (Set, diag.Findings) {
	s = s.clone()
	s.DescribedTypes = described
	var fs diag.Findings
	for i, g := range s.Groups {
		arch := s.Arch(g.Spec.MachineType)
		s.Groups[i].Spec.Image = imageForArch(g.Spec.Image, arch)
		v := validator{fs: &fs, pathPrefix: "instancegroup/" + g.Metadata.Name + ": ", types: s}
		checkDescribedTypes(v, s.Groups[i].Spec, s.Cluster, asked)
	}

	return s, fs
}

// checkDescribedTypes repeats the checks that depend on machine types, if any of asked is one of
// the group.
func checkDescribedTypes(v validator, spec v1alpha1.InstanceGroupSpec, c v1alpha1.Cluster, asked []string) {
	missing := false
	own := false
	for _, name := range MachineTypes(spec) {
		if !slices.Contains(asked, name) {
			continue
		}

		own = true
		t, ok := v.types.FindInstanceType(name)

		switch {
		case !ok:
			missing = true
			v.errorf("spec.machineType", name, unknownTypeHint(name), "is not offered in this region")
		case t.Arch != archAMD64 && t.Arch != archARM64:
			missing = true
			v.errorf("spec.machineType", name, "use a type of amd64 or arm64", "is %s, for which there is no agent", t.Arch)
		}
	}

	if own && !missing {
		v.checkMachineType(spec)
		v.checkMixedInstances(spec)
		checkGroupPods(v, spec, c)
	}
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

// unknownTypeHint suggests the known type whose name is most similar.
func unknownTypeHint(name string) string {
	if near := diag.Nearest(name, InstanceTypeNames("")); near != "" {
		return "did you mean " + near + "?"
	}

	return "list the types with: aws ec2 describe-instance-types"
}

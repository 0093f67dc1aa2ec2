// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	sdk "github.com/aws/aws-sdk-go/service/ec2"

	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

//go:embed instance-types.json
var instanceTypesJSON []byte

// instanceTypeSpec is one instance type, as recorded from DescribeInstanceTypes.
type instanceTypeSpec struct {
	VCPU               int64     `json:"vcpu"`
	MemoryMiB          int64     `json:"memoryMib"`
	Arch               []string  `json:"arch"` // amd64 or arm64
	ENIs               int64     `json:"enis"` // maximum number of network interfaces
	IPv4PerENI         int64     `json:"ipv4PerEni"`
	NetworkPerformance string    `json:"network"` // such as Up to 5 Gigabit
	MaxEBSVolumes      int64     `json:"ebsMax"`  // root volume included
	BareMetal          bool      `json:"bareMetal"`
	Burstable          bool      `json:"burstable"`    // a T type
	NetworkCards       int64     `json:"networkCards"` // 0 means 1
	CurrentGeneration  *bool     `json:"current"`      // nil means true
	Hypervisor         string    `json:"hypervisor"`   // empty means nitro, none on bare metal
	ThreadsPerCore     int64     `json:"threads"`      // 0 means 2
	LocalDiskGB        int64     `json:"localDiskGB"`  // instance store in total
	GPUs               []gpuSpec `json:"gpus"`
}

// gpuSpec is one kind of GPU of an instance type.
type gpuSpec struct {
	Count        int64  `json:"count"`
	Manufacturer string `json:"manufacturer"`
	Name         string `json:"name"`
	MemoryMiB    int64  `json:"memoryMib"` // of one
}

func loadInstanceTypes() (map[string]instanceTypeSpec, []string, error) {
	var file struct {
		Types map[string]instanceTypeSpec `json:"types"`
	}
	if err := json.Unmarshal(instanceTypesJSON, &file); err != nil {
		return nil, nil, fmt.Errorf("read the embedded instance types: %w", err)
	}

	return file.Types, sortedKeys(file.Types), nil
}

// itoa formats a number.
func itoa(n int) string { return strconv.Itoa(n) }

// instanceTypeHandlers serves instance types.
type instanceTypeHandlers struct{ *Service }

func (s instanceTypeHandlers) ops() []wire.Operation {
	return []wire.Operation{
		readOperation(s.Service, "DescribeInstanceTypes", s.describeInstanceTypes),
		readOperation(s.Service, "DescribeInstanceTypeOfferings", s.describeInstanceTypeOfferings),
	}
}

// awsArchitectures returns AWS's names of a type's architectures, such as x86_64.
func (t instanceTypeSpec) awsArchitectures() []string {
	var out []string
	for _, a := range t.Arch {
		if a == "amd64" {
			a = "x86_64"
		}

		out = append(out, a)
	}

	return out
}

func buildInstanceTypeInfo(name string, t instanceTypeSpec) *sdk.InstanceTypeInfo {
	current := t.CurrentGeneration == nil || *t.CurrentGeneration
	cpu := t.cpuOptions()
	ebs := &sdk.EbsInfo{
		EbsOptimizedSupport: new("default"),
		EncryptionSupport:   new("supported"),
		NvmeSupport:         new("required"),
	}

	out := &sdk.InstanceTypeInfo{
		InstanceType:                  new(name),
		CurrentGeneration:             new(current),
		BareMetal:                     new(t.BareMetal),
		BurstablePerformanceSupported: new(t.Burstable),
		FreeTierEligible:              new(false),
		DedicatedHostsSupported:       new(!t.Burstable),
		AutoRecoverySupported:         new(true),
		HibernationSupported:          new(false),
		InstanceStorageSupported:      new(t.LocalDiskGB > 0),
		GpuInfo:                       t.gpuInfo(),
		EbsInfo:                       ebs,
		ProcessorInfo: &sdk.ProcessorInfo{
			SupportedArchitectures: sdkshape.StringPointers(t.awsArchitectures()),
		},
		VCpuInfo: &sdk.VCpuInfo{
			DefaultVCpus:          new(t.VCPU),
			DefaultCores:          cpu.CoreCount,
			DefaultThreadsPerCore: cpu.ThreadsPerCore,
		},
		MemoryInfo: &sdk.MemoryInfo{SizeInMiB: new(t.MemoryMiB)},
		NetworkInfo: &sdk.NetworkInfo{
			NetworkPerformance:        new(t.NetworkPerformance),
			MaximumNetworkInterfaces:  new(t.ENIs),
			Ipv4AddressesPerInterface: new(t.IPv4PerENI),
			EnaSupport:                new("required"),
			Ipv6Supported:             new(true),
			MaximumNetworkCards:       new(max(t.NetworkCards, 1)),
			DefaultNetworkCardIndex:   new(int64(0)),
			NetworkCards:              t.networkCards(),
		},
		PlacementGroupInfo: &sdk.PlacementGroupInfo{
			SupportedStrategies: sdkshape.StringPointers([]string{"partition", "spread"}),
		},
		SupportedBootModes:           sdkshape.StringPointers([]string{"legacy-bios", "uefi"}),
		SupportedRootDeviceTypes:     sdkshape.StringPointers([]string{"ebs"}),
		SupportedUsageClasses:        sdkshape.StringPointers([]string{"on-demand", "spot"}),
		SupportedVirtualizationTypes: sdkshape.StringPointers([]string{"hvm"}),
	}
	if t.LocalDiskGB > 0 {
		out.InstanceStorageInfo = &sdk.InstanceStorageInfo{TotalSizeInGB: new(t.LocalDiskGB)}
	}

	if !t.BareMetal {
		out.Hypervisor = new(cmp.Or(t.Hypervisor, sdk.InstanceTypeHypervisorNitro))
	}

	return out
}

// networkCards returns the network cards of a type, which share its network interfaces.
func (t instanceTypeSpec) networkCards() []*sdk.NetworkCardInfo {
	count := max(t.NetworkCards, 1)
	var out []*sdk.NetworkCardInfo
	for i := range count {
		out = append(out, &sdk.NetworkCardInfo{
			NetworkCardIndex:         new(i),
			MaximumNetworkInterfaces: new(t.ENIs / count),
			NetworkPerformance:       new(t.NetworkPerformance),
		})
	}

	return out
}

// gpuInfo returns the GPUs of a type; nil if it has none.
func (t instanceTypeSpec) gpuInfo() *sdk.GpuInfo {
	if len(t.GPUs) == 0 {
		return nil
	}

	out := &sdk.GpuInfo{}
	total := int64(0)
	for _, g := range t.GPUs {
		total += g.Count * g.MemoryMiB
		out.Gpus = append(out.Gpus, &sdk.GpuDeviceInfo{
			Count:        new(g.Count),
			Manufacturer: new(g.Manufacturer),
			Name:         new(g.Name),
			MemoryInfo:   &sdk.GpuDeviceMemoryInfo{SizeInMiB: new(g.MemoryMiB)},
		})
	}

	out.TotalGpuMemoryInMiB = new(total)

	return out
}

func instanceTypeFilterValues(t *sdk.InstanceTypeInfo, name string) ([]string, bool) {
	if t.InstanceType == nil { // only the second result matters
		t = &sdk.InstanceTypeInfo{
			ProcessorInfo: &sdk.ProcessorInfo{},
			VCpuInfo:      &sdk.VCpuInfo{DefaultVCpus: new(int64(0))},
			MemoryInfo:    &sdk.MemoryInfo{SizeInMiB: new(int64(0))},
		}
	}

	v, known := map[string][]string{
		"instance-type":                         {str(t.InstanceType)},
		"current-generation":                    {boolText(t.CurrentGeneration)},
		"bare-metal":                            {boolText(t.BareMetal)},
		"burstable-performance-supported":       {boolText(t.BurstablePerformanceSupported)},
		"hypervisor":                            {str(t.Hypervisor)},
		"processor-info.supported-architecture": strs(t.ProcessorInfo.SupportedArchitectures),
		"vcpu-info.default-cores":               {numberText(t.VCpuInfo.DefaultCores)},
		"vcpu-info.default-threads-per-core":    {numberText(t.VCpuInfo.DefaultThreadsPerCore)},
		"vcpu-info.default-vcpus":               {strconv.FormatInt(*t.VCpuInfo.DefaultVCpus, 10)},
		"memory-info.size-in-mib":               {strconv.FormatInt(*t.MemoryInfo.SizeInMiB, 10)},
		"supported-usage-class":                 {"on-demand", "spot"},
		"supported-virtualization-type":         {"hvm"},
		"supported-root-device-type":            {"ebs"},
		"free-tier-eligible":                    {"false"},
		"instance-storage-supported":            {boolText(t.InstanceStorageSupported)},
	}[name]

	return v, known
}

func (s instanceTypeHandlers) describeInstanceTypes(
	in *sdk.DescribeInstanceTypesInput,
) (*sdk.DescribeInstanceTypesOutput, error) {
	all := map[string]*sdk.InstanceTypeInfo{}
	for _, name := range strs(in.InstanceTypes) {
		if _, ok := s.instanceTypes[name]; !ok {
			return nil, newErrorf(
				codeInvalidInstanceType,
				"The following supplied instance types do not exist: [%s]",
				name,
			)
		}

		all[name] = buildInstanceTypeInfo(name, s.instanceTypes[name])
	}

	if len(in.InstanceTypes) == 0 {
		for _, name := range s.instanceTypeNames {
			all[name] = buildInstanceTypeInfo(name, s.instanceTypes[name])
		}
	}

	limit := in.MaxResults
	if limit == nil && len(in.InstanceTypes) == 0 {
		limit = new(int64(100)) // AWS's page size, so that a caller that does not page fails here too
	}

	got, next, err := listResources(
		s.Service,
		all,
		describeQuery{filters: in.Filters, maxResults: limit, nextToken: in.NextToken},
		resourceLister[sdk.InstanceTypeInfo]{filterValues: instanceTypeFilterValues},
	)

	return &sdk.DescribeInstanceTypesOutput{InstanceTypes: got, NextToken: next}, err
}

// describeInstanceTypeOfferings offers every type in every zone.
func (s instanceTypeHandlers) describeInstanceTypeOfferings(
	in *sdk.DescribeInstanceTypeOfferingsInput,
) (*sdk.DescribeInstanceTypeOfferingsOutput, error) {
	kind := str(in.LocationType)
	var places []string
	switch kind {
	case "", sdk.LocationTypeRegion:
		kind = sdk.LocationTypeRegion
		places = []string{s.cfg.Region}
	case sdk.LocationTypeAvailabilityZone:
		places = s.cfg.zoneNames()
	case sdk.LocationTypeAvailabilityZoneId:
		for _, z := range s.cfg.zoneNames() {
			places = append(places, s.cfg.zoneID(z))
		}

	default:
		return nil, invalidParameter("LocationType", kind, "")
	}

	// Create only what the filters can match: every type in every zone makes some thousands.
	wanted := s.instanceTypeNames

	for _, f := range in.Filters {
		if str(f.Name) == "instance-type" {
			wanted = slices.DeleteFunc(
				slices.Clone(wanted),
				func(n string) bool { return !anyMatch([]string{n}, strs(f.Values)) },
			)
		}
	}

	all := map[string]*sdk.InstanceTypeOffering{}

	for _, name := range wanted {
		for _, place := range places {
			all[name+" "+place] = &sdk.InstanceTypeOffering{
				InstanceType: new(name),
				Location:     new(place),
				LocationType: new(kind),
			}
		}
	}

	field := func(o *sdk.InstanceTypeOffering, name string) ([]string, bool) {
		v, known := map[string]*string{"instance-type": o.InstanceType, "location": o.Location}[name]
		return []string{str(v)}, known
	}

	got, next, err := listResources(
		s.Service,
		all,
		describeQuery{filters: in.Filters, maxResults: in.MaxResults, nextToken: in.NextToken},
		resourceLister[sdk.InstanceTypeOffering]{filterValues: field},
	)

	return &sdk.DescribeInstanceTypeOfferingsOutput{InstanceTypeOfferings: got, NextToken: next}, err
}

// cpuOptions returns the cores and the threads of each.
func (t instanceTypeSpec) cpuOptions() *sdk.CpuOptions {
	threads := min(t.VCPU, cmp.Or(t.ThreadsPerCore, 2))

	return &sdk.CpuOptions{CoreCount: new(max(t.VCPU/threads, 1)), ThreadsPerCore: new(threads)}
}

// checkInstanceType refuses a type that the region does not have.
func (s *Service) checkInstanceType(name string) error {
	if _, known := s.instanceTypes[name]; !known {
		return newErrorf(codeInvalidParameterValue, "Invalid value '%s' for InstanceType.", name)
	}

	return nil
}

// supportsArchitecture reports whether a type can run an image of the architecture, such as x86_64.
func (t instanceTypeSpec) supportsArchitecture(architecture string) bool {
	return slices.Contains(t.awsArchitectures(), strings.TrimSpace(architecture))
}

// HasInstanceType reports whether the region offers an instance type.
func (s *Service) HasInstanceType(name string) bool {
	_, ok := s.instanceTypes[name]
	return ok
}

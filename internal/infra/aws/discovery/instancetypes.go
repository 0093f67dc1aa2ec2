// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/slipway-k8s/slipway/internal/infra/aws/driver"
	"github.com/slipway-k8s/slipway/internal/infra/aws/transport"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// instanceTypeAPI is the part of EC2 that describes instance types.
type instanceTypeAPI interface {
	ec2.DescribeInstanceTypesAPIClient
}

// DescribeInstanceTypes returns what EC2 says of the instance types called names, sorted by name. Types that the
// region does not offer are missing. It asks with a filter: a request by name fails as a whole if one is missing.
func DescribeInstanceTypes(
	ctx context.Context,
	cfg aws.Config,
	names []string,
) ([]manifest.InstanceType, error) {
	var api instanceTypeAPI = ec2.NewFromConfig(cfg)
	pages := ec2.NewDescribeInstanceTypesPaginator(
		api,
		&ec2.DescribeInstanceTypesInput{Filters: driver.NewFilters("instance-type", names...)},
	)

	out := []manifest.InstanceType{}
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, transport.Wrap(err, "describe instance types %s", strings.Join(names, ", "))
		}

		for _, info := range page.InstanceTypes {
			out = append(out, convertInstanceType(info))
		}
	}

	slices.SortFunc(out, func(a, b manifest.InstanceType) int { return cmp.Compare(a.Name, b.Name) })

	return out, nil
}

// convertInstanceType returns the facts of a type. Members that EC2 left out are zero.
func convertInstanceType(info ec2types.InstanceTypeInfo) manifest.InstanceType {
	out := manifest.InstanceType{Name: string(info.InstanceType)}
	if info.ProcessorInfo != nil {
		out.Arch = convertArchitectures(info.ProcessorInfo.SupportedArchitectures)
	}

	if info.VCpuInfo != nil {
		out.VCPU = int(aws.ToInt32(info.VCpuInfo.DefaultVCpus))
	}

	if info.MemoryInfo != nil {
		out.MemoryMiB = int(aws.ToInt64(info.MemoryInfo.SizeInMiB))
	}

	if network := info.NetworkInfo; network != nil {
		out.Interfaces = int(aws.ToInt32(network.MaximumNetworkInterfaces))
		out.AddressesPerInterface = int(aws.ToInt32(network.Ipv4AddressesPerInterface))
	}

	// EC2 names no hypervisor for bare metal, which has Nitro cards.
	out.Details.Nitro = info.Hypervisor == ec2types.InstanceTypeHypervisorNitro || aws.ToBool(info.BareMetal)
	out.Details.GPUs = describeGPUs(info.GpuInfo)

	return out
}

// convertArchitectures returns the architecture for which images are chosen: the 64-bit one of those that a type
// supports, else the first with EC2's name.
func convertArchitectures(all []ec2types.ArchitectureType) string {
	switch {
	case slices.Contains(all, ec2types.ArchitectureTypeX8664):
		return "amd64"
	case slices.Contains(all, ec2types.ArchitectureTypeArm64):
		return "arm64"
	case len(all) > 0:
		return string(all[0])
	default:
		return "of an unknown architecture"
	}
}

// describeGPUs returns the number, maker and name of each kind of GPU.
func describeGPUs(info *ec2types.GpuInfo) string {
	if info == nil {
		return ""
	}

	var out []string
	for _, gpu := range info.Gpus {
		out = append(out, fmt.Sprintf(
			"%d %s %s", aws.ToInt32(gpu.Count), aws.ToString(gpu.Manufacturer), aws.ToString(gpu.Name),
		))
	}

	return strings.Join(out, ", ")
}

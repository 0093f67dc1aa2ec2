// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"fmt"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
)

// The names of the groups that NewSet creates.
const (
	ControlPlaneGroup = "control-plane"
	WorkersGroup      = "workers"
)

// NewSetOptions configure a new cluster. Default sets the fields that are unset here.
type NewSetOptions struct {
	// ControlPlaneCount and WorkerCount are numbers of machines.
	ControlPlaneCount, WorkerCount int
	// ControlPlaneSize and NodeSize are EC2 instance types.
	ControlPlaneSize, NodeSize string
	// KubernetesVersion without "v".
	KubernetesVersion string
	// NetworkCIDR of the VPC.
	NetworkCIDR string
	// APILoadBalancerType is a LoadBalancer constant.
	APILoadBalancerType string
	// APIAccess lists the CIDR ranges that reach the API.
	APIAccess []string
	// NATGateways is a NAT constant.
	NATGateways string
	// ConfigStoreBase is the s3:// URL that machines read their documents from.
	ConfigStoreBase string
}

// NewSet returns the documents of a cluster called name: a Public and a Private subnet in each
// zone, one control-plane group, and one worker group. The result is not defaulted or validated;
// the findings report invalid zones.
func NewSet(name string, zones []string, o NewSetOptions) (Set, diag.Findings) {
	var fs diag.Findings
	c := v1alpha1.Cluster{
		APIVersion: v1alpha1.APIVersion,
		Kind:       v1alpha1.KindCluster,
		Metadata:   v1alpha1.Metadata{Name: name},
		Spec: v1alpha1.ClusterSpec{
			KubernetesVersion: o.KubernetesVersion,
			Networking:        v1alpha1.Networking{NetworkCIDR: o.NetworkCIDR, NATGateways: o.NATGateways},
			API: v1alpha1.APIAccess{
				LoadBalancer: v1alpha1.LoadBalancer{Type: o.APILoadBalancerType},
				Access:       o.APIAccess,
			},
			ConfigStore: v1alpha1.ConfigStore{Base: o.ConfigStoreBase},
		},
	}

	zones = distinctZones(zones, &fs)

	for _, typ := range []v1alpha1.SubnetType{v1alpha1.SubnetPublic, v1alpha1.SubnetPrivate} {
		for _, zone := range zones {
			subnet := v1alpha1.Subnet{Name: subnetName(typ, zone), Zone: zone, Type: typ}
			c.Spec.Networking.Subnets = append(c.Spec.Networking.Subnets, subnet)
		}
	}

	group := func(name string, role v1alpha1.Role, size int, machine string) v1alpha1.InstanceGroup {
		g := v1alpha1.InstanceGroup{
			APIVersion: v1alpha1.APIVersion,
			Kind:       v1alpha1.KindInstanceGroup,
			Metadata:   v1alpha1.Metadata{Name: name},
			Spec:       v1alpha1.InstanceGroupSpec{Role: role, MachineType: machine},
		}
		if size != 0 {
			g.Spec.MinSize = &size
		}

		return g
	}

	return Set{Cluster: c, Groups: []v1alpha1.InstanceGroup{
		group(ControlPlaneGroup, v1alpha1.RoleControlPlane, o.ControlPlaneCount, o.ControlPlaneSize),
		group(WorkersGroup, v1alpha1.RoleWorker, o.WorkerCount, o.NodeSize),
	}}, fs
}

// distinctZones reports duplicate and invalid zones, and those of a second region, and returns the others.
func distinctZones(zones []string, fs *diag.Findings) []string {
	if len(zones) == 0 {
		fs.Errorf("--zones", "", "list three, such as us-east-1a,us-east-1b,us-east-1c", "must not be empty")
	}

	seen := map[string]bool{}
	region := ""
	var out []string

	for i, zone := range zones {
		at := fmt.Sprintf("--zones[%d]", i)
		switch {
		case !zonePattern().MatchString(zone):
			fs.Errorf(at, zone, "write it as us-east-1a", "is not an availability zone")
		case seen[zone]:
			fs.Errorf(at, zone, "list each zone once", "is listed twice")
		case region != "" && zone[:len(zone)-1] != region:
			fs.Errorf(at, zone, "use zones of one region", "is not in region %s, as the zone before it", region)
		default:
			region = zone[:len(zone)-1]
			out = append(out, zone)
		}

		seen[zone] = true
	}

	return out
}

func subnetName(typ v1alpha1.SubnetType, zone string) string {
	if typ == v1alpha1.SubnetPublic {
		return "public-" + zoneLetter(zone)
	}

	return "private-" + zoneLetter(zone)
}

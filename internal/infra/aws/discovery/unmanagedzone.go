// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/route53"
	r53types "github.com/aws/aws-sdk-go-v2/service/route53/types"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/infra/aws/driver"
	"github.com/slipway-k8s/slipway/internal/infra/aws/transport"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
	"github.com/slipway-k8s/slipway/internal/infra/unmanaged"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

type zoneAPI interface {
	route53.ListResourceRecordSetsAPIClient
	GetHostedZone(
		context.Context,
		*route53.GetHostedZoneInput,
		...func(*route53.Options),
	) (*route53.GetHostedZoneOutput, error)
}

// readUnmanagedZone reads the hosted zone that the manifest names by its id, and whether another
// record has the name of the Kubernetes API.
func readUnmanagedZone(ctx context.Context, api zoneAPI, c v1alpha1.Cluster, f *unmanaged.Facts) error {
	id := c.Spec.DNSZone
	if !manifest.HasDNS(c.Spec) || !manifest.IsZoneID(id) {
		return nil
	}

	out, err := api.GetHostedZone(ctx, &route53.GetHostedZoneInput{Id: &id})
	if err = transport.Wrap(err, "read zone %s", id); plan.ErrorClassOf(err) == plan.NotFound {
		return nil
	} else if err != nil {
		return err
	}

	f.HostedZone = unmanaged.HostedZone{
		Name:    strings.TrimSuffix(aws.ToString(out.HostedZone.Name), "."),
		Private: out.HostedZone.Config != nil && out.HostedZone.Config.PrivateZone,
	}

	for _, v := range out.VPCs {
		f.HostedZone.VPCs = append(f.HostedZone.VPCs, aws.ToString(v.VPCId))
	}

	return driver.WalkRecords(ctx, api, id, func(r r53types.ResourceRecordSet) {
		same := strings.TrimSuffix(aws.ToString(r.Name), ".") == c.Spec.API.PublicName &&
			slices.Contains([]r53types.RRType{r53types.RRTypeA, r53types.RRTypeCname}, r.Type)
		// The record of another cluster of this name is rejected with the cluster's resources.
		_, ours := awskind.RecordSetOwner(aws.ToString(r.SetIdentifier), c.Metadata.Name)
		f.HostedZone.RecordTaken = f.HostedZone.RecordTaken || same && !ours
	})
}

// ReadNameServers returns the name of the cluster's hosted zone, and the name servers that the
// parent domain has to delegate it to. servers is empty if the zone is not created yet.
func ReadNameServers(
	ctx context.Context,
	cfg aws.Config,
	c v1alpha1.Cluster,
) (zone string, servers []string, err error) {
	api := route53.NewFromConfig(cfg)
	id := c.Spec.DNSZone
	if !manifest.IsZoneID(id) {
		zone = id
		id = ""
		zones, err := driver.ListClusterZones(ctx, api, c.Metadata.Name)
		if err != nil {
			return zone, nil, err
		}

		for _, z := range zones {
			if strings.TrimSuffix(aws.ToString(z.Name), ".") == zone {
				id = driver.TrimZonePrefix(z.Id)
			}
		}
	}

	if id == "" {
		return zone, nil, nil
	}

	out, err := api.GetHostedZone(ctx, &route53.GetHostedZoneInput{Id: &id})
	if err != nil {
		return zone, nil, transport.Wrap(err, "read zone %s", id)
	}

	if out.DelegationSet != nil {
		servers = out.DelegationSet.NameServers
	}

	return strings.TrimSuffix(aws.ToString(out.HostedZone.Name), "."), servers, nil
}

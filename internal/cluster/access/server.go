// SPDX-License-Identifier: Apache-2.0

package access

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	elbtypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/cluster/clusterstate"
	"github.com/slipway-k8s/slipway/internal/infra/aws/driver"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/machine/kube"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// identity is a cluster as its resources in AWS name it.
type identity struct {
	name      string
	ownership clusterstate.Ownership
}

// owns reports whether a resource with these tags is the cluster's.
func (c identity) owns(tags map[string]string) bool {
	return tags[awskind.TagCluster] == c.name && c.ownership.OwnsTags(tags)
}

// findServerURL returns the URL of the cluster's API: at its elastic IP address if it has one, else at a
// load balancer.
func findServerURL(ctx context.Context, cfg aws.Config, c identity) (string, error) {
	out, err := ec2.NewFromConfig(
		cfg,
	).DescribeAddresses(
		ctx,
		&ec2.DescribeAddressesInput{Filters: []ec2types.Filter{
			{Name: aws.String("tag:" + awskind.TagCluster), Values: []string{c.name}},
			{Name: aws.String("tag-key"), Values: []string{awskind.TagSlot}},
		}},
	)
	if err != nil {
		return "", fmt.Errorf("find the address of cluster %s: %w", c.name, err)
	}

	for _, a := range out.Addresses {
		if c.owns(driver.FromEC2Tags(a.Tags)) {
			return "https://" + aws.ToString(a.PublicIp) + ":" + kube.APIPort, nil
		}
	}

	return findLoadBalancerURL(ctx, elb.NewFromConfig(cfg), c)
}

// loadBalancerAPI are the calls that find the API's load balancer.
type loadBalancerAPI interface {
	elb.DescribeLoadBalancersAPIClient
	DescribeTags(
		context.Context,
		*elb.DescribeTagsInput,
		...func(*elb.Options),
	) (*elb.DescribeTagsOutput, error)
}

// maxTaggedARNs is the maximum of resources in one call of DescribeTags.
const maxTaggedARNs = 20

// findLoadBalancerURL returns the URL of the cluster's API: its internet-facing load balancer, else the
// internal one.
func findLoadBalancerURL(ctx context.Context, api loadBalancerAPI, c identity) (string, error) {
	var all []elbtypes.LoadBalancer
	pages := elb.NewDescribeLoadBalancersPaginator(api, &elb.DescribeLoadBalancersInput{})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return "", fmt.Errorf("find the load balancer of cluster %s: %w", c.name, err)
		}

		all = append(all, page.LoadBalancers...)
	}

	internal := ""

	for start := 0; start < len(all); start += maxTaggedARNs {
		some := all[start:min(start+maxTaggedARNs, len(all))]
		mine, err := filterByCluster(ctx, api, some, c)
		if err != nil {
			return "", err
		}

		for _, lb := range mine {
			if lb.Scheme == elbtypes.LoadBalancerSchemeEnumInternetFacing {
				return "https://" + aws.ToString(lb.DNSName) + ":443", nil
			}

			internal = "https://" + aws.ToString(
				lb.DNSName,
			) + ":443" // its users may reach no other port (model.access)
		}
	}

	if internal == "" {
		return "", diag.WithHint(
			fmt.Errorf("cluster %s has no load balancer in AWS", c.name),
			"create it with: slipway apply "+c.name+" --yes",
		)
	}

	return internal, nil
}

// filterByCluster returns those load balancers that have the cluster's tag.
func filterByCluster(
	ctx context.Context,
	api loadBalancerAPI,
	some []elbtypes.LoadBalancer,
	c identity,
) ([]elbtypes.LoadBalancer, error) {
	var arns []string
	for _, lb := range some {
		arns = append(arns, aws.ToString(lb.LoadBalancerArn))
	}

	out, err := api.DescribeTags(ctx, &elb.DescribeTagsInput{ResourceArns: arns})
	if err != nil {
		return nil, fmt.Errorf("find the load balancer of cluster %s: %w", c.name, err)
	}

	tagged := map[string]bool{}

	for _, d := range out.TagDescriptions {
		tags := map[string]string{}
		for _, t := range d.Tags {
			tags[aws.ToString(t.Key)] = aws.ToString(t.Value)
		}

		tagged[aws.ToString(d.ResourceArn)] = c.owns(tags)
	}

	var mine []elbtypes.LoadBalancer

	for _, lb := range some {
		if tagged[aws.ToString(lb.LoadBalancerArn)] {
			mine = append(mine, lb)
		}
	}

	return mine, nil
}

// dnsTimeout limits a query to the DNS.
const dnsTimeout = 5 * time.Second

// PreferDNSName returns the URL with the API's DNS name, if the cluster has one that this machine resolves;
// else server.
func PreferDNSName(
	ctx context.Context,
	env *cluster.Env,
	spec v1alpha1.ClusterSpec,
	server string,
) string {
	u, err := url.Parse(server)
	if !manifest.HasDNS(spec) || err != nil {
		return server
	}

	name := spec.API.PublicName
	ctx, cancel := context.WithTimeout(ctx, dnsTimeout)
	defer cancel()
	if _, err := env.Resolver.LookupHost(ctx, name); err != nil {
		env.Notifyf("%s does not resolve here yet; the kubeconfig uses %s instead", name, u.Hostname())
		return server
	}

	port := u.Port()
	if spec.Topology.DNS.Type == manifest.DNSPrivate &&
		spec.API.LoadBalancer.Type == manifest.LoadBalancerPublic {
		port = kube.APIPort // the name leads to the internal load balancer, which has no other
	}

	return "https://" + net.JoinHostPort(name, port)
}

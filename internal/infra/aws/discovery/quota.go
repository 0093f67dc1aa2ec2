// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	elbtypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/servicequotas"

	"github.com/slipway-k8s/slipway/internal/infra/aws/driver"
	"github.com/slipway-k8s/slipway/internal/infra/aws/transport"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
	"github.com/slipway-k8s/slipway/internal/infra/quota"
)

// quotaAPI reads quotas.
type quotaAPI interface {
	GetServiceQuota(
		context.Context,
		*servicequotas.GetServiceQuotaInput,
		...func(*servicequotas.Options),
	) (*servicequotas.GetServiceQuotaOutput, error)
}

// usageAPI lists the resources that count toward quotas.
type usageAPI interface {
	DescribeAddresses(
		context.Context,
		*ec2.DescribeAddressesInput,
		...func(*ec2.Options),
	) (*ec2.DescribeAddressesOutput, error)
	ec2.DescribeInstancesAPIClient
	ec2.DescribeVpcsAPIClient
}

// accountSummaryAPI reads the usage and the quotas of IAM.
type accountSummaryAPI interface {
	GetAccountSummary(
		context.Context,
		*iam.GetAccountSummaryInput,
		...func(*iam.Options),
	) (*iam.GetAccountSummaryOutput, error)
}

// OwnsFunc reports whether a resource with these tags belongs to the cluster, and not to another cluster of its
// name.
type OwnsFunc func(tags map[string]string) bool

// OwnResources tells the resources of the cluster from the others of the account.
type OwnResources struct {
	// OwnsTags is used for resources that AWS lists with their tags.
	OwnsTags OwnsFunc
	// Resources are the cluster's resources in AWS, for what AWS lists without tags.
	Resources []plan.ActualResource
}

// quotaUsage is the limit of a quota and what other resources of the account use of it.
type quotaUsage struct{ limit, used int }

// ReadQuotas returns the limits of the account for the quotas in needs, and the usage by resources
// that are not in own, for quotas that are shared in the account. It reads them
// concurrently, and no quota whose default suffices. It returns the quotas that it could read together with an error about the others; a
// shared quota without its usage is left out.
func ReadQuotas(
	ctx context.Context,
	cfg aws.Config,
	own OwnResources,
	needs []quota.Requirement,
) (limits, used map[quota.Code]int, err error) {
	limits = map[quota.Code]int{}
	used = map[quota.Code]int{}
	reader := newQuotaReader(cfg, own)
	if slices.ContainsFunc(needs, isQuotaOfIAM) {
		reader.summary = startAccountSummary(ctx, iam.NewFromConfig(cfg))
	}

	var mu sync.Mutex
	var errs []error
	var wg sync.WaitGroup

	for _, n := range needs {
		wg.Go(func() {
			q, err := reader.read(ctx, n)

			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				errs = appendNewError(errs, err)
				return
			}

			limits[n.Code] = q.limit
			if n.Shared {
				used[n.Code] = q.used
			}
		})
	}

	wg.Wait()

	return limits, used, errors.Join(errs...)
}

// appendNewError appends an error unless one with its text is there: two quotas of IAM fail together.
func appendNewError(errs []error, err error) []error {
	if slices.ContainsFunc(errs, func(e error) bool { return e.Error() == err.Error() }) {
		return errs
	}

	return append(errs, err)
}

// quotaReader reads quotas and usage. Its methods may be called concurrently.
type quotaReader struct {
	quotas    quotaAPI
	resources usageAPI
	balancers elb.DescribeLoadBalancersAPIClient
	summary   *accountSummary // nil if no quota of IAM is read
	own       OwnResources
}

func newQuotaReader(cfg aws.Config, own OwnResources) quotaReader {
	return quotaReader{
		quotas:    servicequotas.NewFromConfig(cfg),
		resources: ec2.NewFromConfig(cfg),
		balancers: elb.NewFromConfig(cfg),
		own:       own,
	}
}

// accountSummary is the usage and the quotas of IAM, which one call returns. Whoever needs it waits for read: a channel
// and no lock, so that tests with simulated time can wait too.
type accountSummary struct {
	read   chan struct{} // closed when the other fields are set
	values map[string]int32
	err    error
}

// startAccountSummary starts to read the summary.
func startAccountSummary(ctx context.Context, api accountSummaryAPI) *accountSummary {
	s := &accountSummary{read: make(chan struct{})}

	go func() {
		defer close(s.read)
		out, err := api.GetAccountSummary(ctx, &iam.GetAccountSummaryInput{})
		if err != nil {
			s.err = transport.Wrap(err, "read the quotas of IAM")
			return
		}

		s.values = out.SummaryMap
	}()

	return s
}

// isQuotaOfIAM reports whether the quota of a requirement is part of the account summary.
func isQuotaOfIAM(n quota.Requirement) bool {
	return n.Code == quota.RoleQuota() || n.Code == quota.InstanceProfileQuota()
}

// read returns the limit and the usage of the quota of a requirement.
func (r quotaReader) read(ctx context.Context, n quota.Requirement) (quotaUsage, error) {
	switch n.Code {
	case quota.RoleQuota():
		return r.readIAM("Roles", awskind.IAMRole{}.Kind())
	case quota.InstanceProfileQuota():
		return r.readIAM("InstanceProfiles", awskind.InstanceProfile{}.Kind())
	}

	used, err := r.countOthers(ctx, n.Code)
	if err != nil {
		return quotaUsage{}, err
	}

	if used+n.Amount <= n.Default { // the quota of an account may be higher, but not lower
		return quotaUsage{limit: n.Default, used: used}, nil
	}

	limit, err := readQuota(ctx, r.quotas, n.Code)

	return quotaUsage{limit: limit, used: used}, err
}

// readIAM returns the limit and the usage of a quota of IAM. AWS counts the entities of the account with those of
// the cluster, which are of kind k.
func (r quotaReader) readIAM(key string, k graph.Kind) (quotaUsage, error) {
	<-r.summary.read
	if r.summary.err != nil {
		return quotaUsage{}, r.summary.err
	}

	limit, known := r.summary.values[key+"Quota"]
	if !known {
		return quotaUsage{}, fmt.Errorf("read the quotas of IAM: AWS returned no %sQuota", key)
	}

	used := int(r.summary.values[key]) - len(r.ownIDs(k))

	return quotaUsage{limit: int(limit), used: max(used, 0)}, nil
}

// ownIDs returns the identities of the cluster's resources of a kind.
func (r quotaReader) ownIDs(k graph.Kind) []string {
	var ids []string
	for _, resource := range r.own.Resources {
		if resource.Resource.Kind().Name == k.Name {
			ids = append(ids, resource.ID)
		}
	}

	return ids
}

// countOthers returns how much of a shared quota resources of others use; 0 for a quota that is not shared.
func (r quotaReader) countOthers(ctx context.Context, code quota.Code) (int, error) {
	switch code {
	case quota.VPCQuota():
		return countOtherVPCs(ctx, r.resources, r.own.OwnsTags)
	case quota.ElasticIPQuota():
		return countOtherAddresses(ctx, r.resources, r.own.OwnsTags)
	case quota.VCPUQuota():
		return countOtherVCPUs(ctx, r.resources, r.own.OwnsTags)
	case quota.LoadBalancerQuota():
		return countOtherLoadBalancers(ctx, r.balancers, r.ownIDs(awskind.LoadBalancer{}.Kind()))
	}

	return 0, nil
}

// countOtherLoadBalancers counts the Network Load Balancers without those of the ARNs own.
func countOtherLoadBalancers(
	ctx context.Context,
	api elb.DescribeLoadBalancersAPIClient,
	own []string,
) (int, error) {
	n := 0
	pages := elb.NewDescribeLoadBalancersPaginator(api, &elb.DescribeLoadBalancersInput{})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return 0, transport.Wrap(err, "count load balancers")
		}

		for _, b := range page.LoadBalancers {
			if b.Type == elbtypes.LoadBalancerTypeEnumNetwork && !slices.Contains(own, aws.ToString(b.LoadBalancerArn)) {
				n++
			}
		}
	}

	return n, nil
}

// readQuota returns the value of a quota in the account. AWS also returns it if it is the default.
func readQuota(ctx context.Context, api quotaAPI, c quota.Code) (int, error) {
	out, err := api.GetServiceQuota(
		ctx,
		&servicequotas.GetServiceQuotaInput{ServiceCode: &c.Service, QuotaCode: &c.Quota},
	)
	if err != nil {
		return 0, transport.Wrap(err, "read quota %s", c)
	}

	return int(aws.ToFloat64(out.Quota.Value)), nil
}

func countOtherVPCs(ctx context.Context, api usageAPI, owns OwnsFunc) (int, error) {
	n := 0
	pages := ec2.NewDescribeVpcsPaginator(api, &ec2.DescribeVpcsInput{})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return 0, transport.Wrap(err, "count VPCs")
		}

		for _, v := range page.Vpcs {
			if !owns(driver.FromEC2Tags(v.Tags)) {
				n++
			}
		}
	}

	return n, nil
}

func countOtherAddresses(ctx context.Context, api usageAPI, owns OwnsFunc) (int, error) {
	out, err := api.DescribeAddresses(ctx, &ec2.DescribeAddressesInput{})
	if err != nil {
		return 0, transport.Wrap(err, "count elastic IP addresses")
	}

	n := 0

	for _, a := range out.Addresses {
		if !owns(driver.FromEC2Tags(a.Tags)) {
			n++
		}
	}

	return n, nil
}

// countOtherVCPUs counts the vCPUs of on-demand instances of the standard families.
func countOtherVCPUs(ctx context.Context, api usageAPI, owns OwnsFunc) (int, error) {
	n := 0
	pages := ec2.NewDescribeInstancesPaginator(api, &ec2.DescribeInstancesInput{
		Filters:    driver.NewFilters("instance-state-name", "pending", "running"),
		MaxResults: aws.Int32(1000),
	})

	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return 0, transport.Wrap(err, "count vCPUs")
		}

		for _, r := range page.Reservations {
			for _, i := range r.Instances {
				if !owns(driver.FromEC2Tags(i.Tags)) {
					n += countVCPUs(i)
				}
			}
		}
	}

	return n, nil
}

// countVCPUs returns the vCPUs of an on-demand instance of a standard family; 0 for others, which
// count toward other quotas.
func countVCPUs(i ec2types.Instance) int {
	if i.CpuOptions == nil || i.InstanceLifecycle != "" || !quota.IsStandardFamily(string(i.InstanceType)) {
		return 0
	}

	return int(aws.ToInt32(i.CpuOptions.CoreCount) * aws.ToInt32(i.CpuOptions.ThreadsPerCore))
}

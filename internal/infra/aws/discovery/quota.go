// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"errors"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/servicequotas"

	"github.com/slipway-k8s/slipway/internal/infra/aws/driver"
	"github.com/slipway-k8s/slipway/internal/infra/aws/transport"
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

// OwnsFunc reports whether a resource with these tags belongs to the cluster, and not to another cluster of its
// name.
type OwnsFunc func(tags map[string]string) bool

// ReadQuotas returns the limits of the account for the quotas in needs, and the usage by resources
// that owns rejects, for quotas that are shared in the account. It reads them
// concurrently, and no quota whose default suffices. It returns the quotas that it could read together with an error about the others; a
// shared quota without its usage is left out.
func ReadQuotas(
	ctx context.Context,
	cfg aws.Config,
	owns OwnsFunc,
	needs []quota.Requirement,
) (limits, used map[quota.Code]int, err error) {
	limits = map[quota.Code]int{}
	used = map[quota.Code]int{}
	quotas := servicequotas.NewFromConfig(cfg)
	resources := ec2.NewFromConfig(cfg)
	usage := map[quota.Code]func(context.Context, usageAPI, OwnsFunc) (int, error){
		quota.VPCQuota():       countOtherVPCs,
		quota.ElasticIPQuota(): countOtherAddresses,
		quota.VCPUQuota():      countOtherVCPUs,
	}

	var mu sync.Mutex
	var errs []error
	set := func(into map[quota.Code]int, code quota.Code, n int, err error) {
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			errs = append(errs, err)
			return
		}

		into[code] = n
	}

	var wg sync.WaitGroup

	for _, n := range needs {
		wg.Go(func() {
			total := n.Amount
			if count := usage[n.Code]; count != nil {
				v, err := count(ctx, resources, owns)
				set(used, n.Code, v, err)
				total += v
			}

			if total <= n.Default { // the quota of an account may be higher, but not lower
				set(limits, n.Code, n.Default, nil)
				return
			}

			v, err := readQuota(ctx, quotas, n.Code)
			set(limits, n.Code, v, err)
		})
	}

	wg.Wait()

	for _, n := range needs { // a shared limit is of no use without its usage
		if _, ok := used[n.Code]; !ok && n.Shared {
			delete(limits, n.Code)
		}
	}

	return limits, used, errors.Join(errs...)
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

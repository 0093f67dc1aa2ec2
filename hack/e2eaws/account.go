// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go/logging"
	"github.com/aws/smithy-go/middleware"

	"github.com/slipway-k8s/slipway/internal/infra/aws/transport"
	"github.com/slipway-k8s/slipway/internal/lib/awsfix"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/lib/plainerror"
)

// account is the AWS account of the run. It was checked to be the one that the settings name.
type account struct {
	cfg aws.Config
	id  string
	// endpoint is the URL of AWS_ENDPOINT_URL; empty for AWS itself.
	endpoint string
}

// openAccount returns the account of the credentials, which must be the one that the settings name. It changes nothing.
func openAccount(ctx context.Context, s settings) (account, error) {
	cfg, err := config.LoadDefaultConfig(ctx,
		config.WithRegion(s.region),
		config.WithLogger(logging.Nop{}),
		config.WithAPIOptions([]func(*middleware.Stack) error{awsfix.AddBodyMiddleware}),
	)
	if err != nil {
		return account{}, fmt.Errorf("read the settings of AWS: %w", plainerror.Wrap(err))
	}

	who, err := sts.NewFromConfig(cfg).GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{})
	if err != nil {
		return account{}, diag.WithHint(
			fmt.Errorf("get the account of the credentials in %s: %w", s.region, plainerror.Wrap(err)),
			"set AWS_PROFILE, or log in with: aws sso login",
		)
	}

	a := account{cfg: cfg, id: aws.ToString(who.Account), endpoint: aws.ToString(cfg.BaseEndpoint)}
	if a.id != s.account {
		return account{}, diag.WithHint(
			fmt.Errorf("the credentials belong to account %s, but %s is %s", a.id, variableAccount, s.account),
			"use credentials of that account, or set "+variableAccount+"="+a.id+
				" if clusters may be created and deleted in it; nothing was created",
		)
	}

	return a, nil
}

// describePlace returns the endpoint for messages and reports.
func (a account) describePlace() string {
	if a.endpoint == "" {
		return "AWS"
	}

	return a.endpoint
}

// findZones returns the first n zones of the region that offer the machine type.
func (a account) findZones(ctx context.Context, n int, machineType string) ([]string, error) {
	pages := ec2.NewDescribeInstanceTypeOfferingsPaginator(ec2.NewFromConfig(a.cfg), &ec2.DescribeInstanceTypeOfferingsInput{
		LocationType: ec2types.LocationTypeAvailabilityZone,
		Filters:      []ec2types.Filter{{Name: aws.String("instance-type"), Values: []string{machineType}}},
	})
	offerings, err := transport.CollectPages(
		ctx,
		pages,
		func(p *ec2.DescribeInstanceTypeOfferingsOutput) []ec2types.InstanceTypeOffering {
			return p.InstanceTypeOfferings
		},
	)
	if err != nil {
		return nil, fmt.Errorf("list the zones of %s that offer %s: %w", a.cfg.Region, machineType, plainerror.Wrap(err))
	}

	var zones []string
	for _, offering := range offerings {
		zones = append(zones, aws.ToString(offering.Location))
	}

	slices.Sort(zones)
	if len(zones) < n {
		return nil, diag.WithHint(
			fmt.Errorf("%d zones of %s offer %s, and the cluster needs %d", len(zones), a.cfg.Region, machineType, n),
			"set "+variableTopology+"="+topologySingle+", or another region",
		)
	}

	return zones[:n], nil
}

// errTimeLimit is the cause of a context whose time limit is over.
var errTimeLimit = errors.New("the time limit of the run is over")

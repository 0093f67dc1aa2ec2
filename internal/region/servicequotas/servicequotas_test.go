// SPDX-License-Identifier: Apache-2.0

package servicequotas_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/servicequotas"
	"github.com/aws/aws-sdk-go-v2/service/servicequotas/types"

	"github.com/slipway-k8s/slipway/internal/region/ec2"
	"github.com/slipway-k8s/slipway/internal/region/iam"
	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

// TestQuotasOfOtherServices: the quotas are those that the services of the region enforce. Quotas of IAM are listed in one region
// only.
func TestQuotasOfOtherServices(t *testing.T) {
	t.Parallel()
	options := regiontest.Options{IAMQuotas: iam.Quotas{Roles: 7}, MaxLoadBalancers: 3}
	here := servicequotas.NewFromConfig(regiontest.StartWith(t, options).AWSConfig())
	for code, want := range map[string]float64{
		"iam L-FE177D64": 7, "iam L-6E65F664": 1000, "elasticloadbalancing L-69A177A2": 3, "cloudformation L-0485CB21": 2000, "ec2 L-FB451C26": 5000, "ec2 L-142B4294": 10000,
	} {
		service, quota, _ := strings.Cut(code, " ")
		out, err := here.GetServiceQuota(t.Context(), &servicequotas.GetServiceQuotaInput{ServiceCode: &service, QuotaCode: &quota})
		if err != nil || sdk.ToFloat64(out.Quota.Value) != want || out.Quota.GlobalQuota != (service == "iam") {
			t.Errorf("%s: %+v, %v", code, out, err)
		}
	}
	options.RegionName = "eu-west-1"
	r := regiontest.StartWith(t, options)
	cfg := r.AWSConfig()
	cfg.Region = options.RegionName
	_, err := servicequotas.NewFromConfig(cfg).GetServiceQuota(t.Context(), &servicequotas.GetServiceQuotaInput{ServiceCode: sdk.String("iam"), QuotaCode: sdk.String("L-FE177D64")})
	if _, ok := errors.AsType[*types.NoSuchResourceException](err); !ok {
		t.Errorf("a quota of IAM in eu-west-1: %v", err)
	}
}

func TestQuotas(t *testing.T) {
	t.Parallel()
	r := regiontest.StartWith(t, regiontest.Options{Quotas: ec2.Quotas{VPCs: 7}})
	api := servicequotas.NewFromConfig(r.AWSConfig())
	get := func(service, code string) (float64, error) {
		out, err := api.GetServiceQuota(t.Context(), &servicequotas.GetServiceQuotaInput{ServiceCode: &service, QuotaCode: &code})
		if err != nil {
			return 0, err
		}
		return sdk.ToFloat64(out.Quota.Value), nil
	}
	if v, err := get("vpc", "L-F678F1CE"); err != nil || v != 7 {
		t.Errorf("VPCs: %v, %v", v, err)
	}
	usual, err := api.GetAWSDefaultServiceQuota(t.Context(), &servicequotas.GetAWSDefaultServiceQuotaInput{
		ServiceCode: sdk.String("vpc"), QuotaCode: sdk.String("L-F678F1CE"),
	})
	if err != nil || sdk.ToFloat64(usual.Quota.Value) != 5 {
		t.Errorf("usual VPCs: %+v, %v", usual, err)
	}
	_, err = get("ec2", "L-00000000")
	if _, ok := errors.AsType[*types.NoSuchResourceException](err); !ok {
		t.Errorf("an unknown code: %v", err)
	}
	list, err := api.ListServiceQuotas(t.Context(), &servicequotas.ListServiceQuotasInput{ServiceCode: sdk.String("ec2")})
	if err != nil || len(list.Quotas) < 2 {
		t.Errorf("list: %+v, %v", list, err)
	}
	if _, err := api.ListAWSDefaultServiceQuotas(t.Context(), &servicequotas.ListAWSDefaultServiceQuotasInput{ServiceCode: sdk.String("nothere")}); err == nil {
		t.Error("an unknown service has quotas")
	}
}

// TestQuotasArePaged: the pages together are the whole list.
func TestQuotasArePaged(t *testing.T) {
	t.Parallel()
	api := servicequotas.NewFromConfig(regiontest.Start(t).AWSConfig())
	list := func(most int32) (codes []string) {
		in := &servicequotas.ListServiceQuotasInput{ServiceCode: sdk.String("ec2"), MaxResults: &most}
		for {
			out, err := api.ListServiceQuotas(t.Context(), in)
			if err != nil {
				t.Fatal(err)
			}
			if len(out.Quotas) > int(most) {
				t.Errorf("a page of %d has %d quotas", most, len(out.Quotas))
			}
			for _, q := range out.Quotas {
				codes = append(codes, sdk.ToString(q.QuotaCode))
			}
			if out.NextToken == nil {
				return codes
			}
			in.NextToken = out.NextToken
		}
	}
	all := list(100)
	if got := list(1); !slices.Equal(got, all) || len(all) < 2 {
		t.Errorf("one by one %v, want %v", got, all)
	}
	_, err := api.ListServiceQuotas(t.Context(), &servicequotas.ListServiceQuotasInput{ServiceCode: sdk.String("ec2"), NextToken: sdk.String("x")})
	if _, ok := errors.AsType[*types.InvalidPaginationTokenException](err); !ok {
		t.Errorf("a token that is none: %v", err)
	}
}

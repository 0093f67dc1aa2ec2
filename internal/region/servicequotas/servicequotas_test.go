// SPDX-License-Identifier: Apache-2.0

package servicequotas_test

import (
	"errors"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/servicequotas"
	"github.com/aws/aws-sdk-go-v2/service/servicequotas/types"

	"github.com/slipway-k8s/slipway/internal/region/ec2"
	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

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

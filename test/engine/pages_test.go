// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/smithy-go/middleware"
	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
	"github.com/slipway-k8s/slipway/internal/region/ec2"
	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

// smallPages makes every list of AWS that has pages answer with as few entries as AWS allows: one, and five in EC2.
type smallPages struct {
	mu    sync.Mutex
	sizes map[string]int // calls with a page size, by operation
}

// config returns the configuration of clients whose calls ask for small pages.
func (s *smallPages) config(cfg sdk.Config) sdk.Config {
	cfg = cfg.Copy()
	cfg.APIOptions = append(cfg.APIOptions, func(stack *middleware.Stack) error {
		set := func(
			ctx context.Context, in middleware.InitializeInput, next middleware.InitializeHandler,
		) (middleware.InitializeOutput, middleware.Metadata, error) {
			if limitPage(in.Parameters) {
				s.mu.Lock()
				s.sizes[middleware.GetOperationName(ctx)]++
				s.mu.Unlock()
			}
			return next.HandleInitialize(ctx, in)
		}
		return stack.Initialize.Add(middleware.InitializeMiddlewareFunc("smallPages", set), middleware.After)
	})
	return cfg
}

// limitPage sets the member of an input that limits a page. A request that names what it asks for has no pages, or AWS
// refuses a limit. Some limits are members that the region does not implement.
func limitPage(input any) bool {
	in := reflect.ValueOf(input).Elem()
	limits := []string{"MaxResults", "MaxRecords", "PageSize", "MaxItems", "MaxKeys", "Limit"}
	refused := []string{
		"DescribeWarmPoolInput", "DescribeVolumesModificationsInput", "ListHostedZonesByVPCInput", "ListPolicyVersionsInput", "ListResourceTagsInput",
	}
	if slices.Contains(refused, in.Type().Name()) {
		return false
	}
	size := reflect.Value{}
	for i := range in.NumField() {
		name, field := in.Type().Field(i).Name, in.Field(i)
		switch {
		case field.Kind() == reflect.Slice && field.Len() > 0 && name != "Filters" && name != "Filter":
			return false
		case slices.Contains(limits, name) && field.Type() == reflect.TypeFor[*int32]():
			size = field
		}
	}
	if !size.IsValid() {
		return false
	}
	least := int32(1)
	if strings.HasSuffix(in.Type().PkgPath(), "/service/ec2") {
		least = 5
	}
	size.Set(reflect.ValueOf(&least))
	return true
}

// TestSmallPagesLoseNothing reads, changes and deletes a cluster while every list has as few entries on a page as AWS allows: the
// same resources are found as with AWS's usual pages, nothing is planned, and nothing stays.
func TestSmallPagesLoseNothing(t *testing.T) {
	t.Parallel()
	quotas := ec2.Quotas{Addresses: 20, VCPUs: 100, Volumes: 100}
	r := regiontest.StartWith(t, regiontest.Options{InProcess: true, Quotas: quotas})
	g := mustBuildGraph(t, newWideSet(t, 8, 1))
	if err := newEngine(r.AWSConfig(), "wide").run(t.Context(), g); err != nil {
		t.Fatal(err)
	}
	want, err := newEngine(r.AWSConfig(), "wide").cloud.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	pages := &smallPages{sizes: map[string]int{}}
	small := newEngine(pages.config(r.AWSConfig()), "wide")
	have, err := small.cloud.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(addresses(want), addresses(have)); diff != "" {
		t.Errorf("other resources are found:\n%s", diff)
	}
	if p, fs := plan.Compute(g, have, plan.Options{}); fs.Err() != nil || !p.IsEmpty() {
		t.Errorf("something is planned: %v %v", planLines(p), fs)
	}
	if len(pages.sizes) < 10 || pages.sizes["DescribeSubnets"] < 3 || pages.sizes["DescribeAutoScalingGroups"] < 11 {
		t.Errorf("the lists were not read page by page: %v", pages.sizes)
	}

	if err := small.run(t.Context(), &graph.Graph{}); err != nil {
		t.Fatal(err)
	}
	left, err := newEngine(r.AWSConfig(), "wide").cloud.Read(t.Context())
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", addresses(left), err)
	}
}

// addresses returns the ids of resources by address.
func addresses(resources []plan.ActualResource) map[graph.Addr]string {
	out := map[graph.Addr]string{}
	for _, a := range resources {
		out[a.Addr+graph.Addr(" "+a.Resource.Kind().Name+" "+a.ID)] = a.Owner
	}
	return out
}

// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"context"
	"strconv"
	"strings"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/lib/pki"
	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/machine/node"
	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

// cmdObjects is 'objects PREFIX N [BUCKET]': the state bucket, or another one, holds N objects below PREFIX.
func cmdObjects(ts *testscript.TestScript, _ bool, args []string) {
	r, ok := ts.Value("region").(regiontest.Region)
	if !ok || len(args) < 2 || len(args) > 3 {
		ts.Fatalf("usage: objects PREFIX N [BUCKET]")
	}
	bucket := append(args, "slipway-test")[2]
	api := s3.NewFromConfig(r.AWSConfig(), func(o *s3.Options) { o.UsePathStyle = true })
	out, err := api.ListObjectsV2(context.Background(), &s3.ListObjectsV2Input{Bucket: sdk.String(bucket), Prefix: &args[0]})
	ts.Check(err)
	if got := strconv.Itoa(len(out.Contents)); got != args[1] {
		ts.Fatalf("%s objects below %s, want %s", got, args[0], args[1])
	}
}

// cmdPutObject is 'putobject KEY FILE': the state bucket has an object with the content of the file, as a machine writes it.
func cmdPutObject(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 2 {
		ts.Fatalf("usage: putobject KEY FILE")
	}
	api := s3.NewFromConfig(regionOf(ts).AWSConfig(), func(o *s3.Options) { o.UsePathStyle = true })
	body := strings.NewReader(ts.ReadFile(args[1]))
	_, err := api.PutObject(context.Background(), &s3.PutObjectInput{Bucket: sdk.String("slipway-test"), Key: &args[0], Body: body})
	ts.Check(err)
}

// cmdPutAbsent is 'putabsent SLOT...': the agent of etcd's leader records that slots of cluster demo have no member any more.
func cmdPutAbsent(ts *testscript.TestScript, _ bool, args []string) {
	ctx, cfg := context.Background(), regionOf(ts).AWSConfig()
	options := store.Options{AWS: func(context.Context) (sdk.Config, error) { return cfg, nil }}
	state, sealer, err := store.Open(ctx, "s3://slipway-test", options)
	ts.Check(err)
	ca, err := pki.OpenCA(ctx, state, sealer, "demo", pki.KubernetesCA)
	ts.Check(err)
	for _, slot := range args {
		out, err := ec2.NewFromConfig(cfg).DescribeVolumes(ctx, &ec2.DescribeVolumesInput{
			Filters: []ec2types.Filter{{Name: sdk.String("tag:" + awskind.TagSlot), Values: []string{slot}}},
		})
		ts.Check(err)
		record := node.AbsentSlot{Absent: true}
		for _, v := range out.Volumes {
			record.Volumes = append(record.Volumes, *v.VolumeId)
		}
		key := node.EtcdAbsentKey("demo", slot)
		body, err := node.SignRecord(key, record, ca.Key())
		ts.Check(err)
		_, err = state.Put(ctx, key, body)
		ts.Check(err)
	}
}

// SPDX-License-Identifier: Apache-2.0

package attack_test

import (
	"strings"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/route53"
	r53types "github.com/aws/aws-sdk-go-v2/service/route53/types"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/test/dnsfunction"
)

// createFunctionCluster creates and applies the cluster demo, whose etcd is discovered by DNS, as root.
func (l *lab) createFunctionCluster() {
	l.Helper()
	program, err := dnsfunction.Build(l.dir)
	l.check(err)
	l.more = map[string]string{"SLIPWAY_DNS_BINARY": program}
	l.must(caller{}, 0, "create", "cluster", "demo", "--zones", "us-east-1a,us-east-1b,us-east-1c", "--yes")
	cluster := l.must(caller{}, 0, "get", "cluster", "demo", "-o", "yaml")
	edited := l.temporaryFile("cluster.yaml", strings.Replace(cluster, "discovery: Tags", "discovery: DNS", 1))
	l.must(caller{}, 0, "replace", "-f", edited, "--yes")
	l.must(caller{}, 0, "apply", "demo", "--yes")
}

// TestFunctionRoleIsLimited: whoever has the role of the function for DNS records changes those of etcd's members, and reads no
// object of the store, ends no machine, changes no volume, and no record of another name or zone. Seen to succeed for a name that ends
// in that of another cluster.
func TestFunctionRoleIsLimited(t *testing.T) {
	l := newLab(t)
	l.createFunctionCluster()
	function := l.assumedWith("demo.dns.us-east-1", "records")
	zones := route53.NewFromConfig(l.config(caller{}))
	found, err := zones.ListHostedZones(t.Context(), &route53.ListHostedZonesInput{})
	l.check(err)
	if len(found.HostedZones) != 1 {
		t.Fatalf("%d zones", len(found.HostedZones))
	}

	other, err := zones.CreateHostedZone(t.Context(), &route53.CreateHostedZoneInput{
		Name: sdk.String("shop.example.com"), CallerReference: sdk.String("shop"),
	})
	l.check(err)
	own := found.HostedZones[0]
	change := func(zone, name string) error {
		_, err := route53.NewFromConfig(l.config(function)).ChangeResourceRecordSets(t.Context(), &route53.ChangeResourceRecordSetsInput{
			HostedZoneId: &zone,
			ChangeBatch: &r53types.ChangeBatch{Changes: []r53types.Change{{
				Action: r53types.ChangeActionUpsert,
				ResourceRecordSet: &r53types.ResourceRecordSet{
					Name:            &name,
					Type:            r53types.RRTypeA,
					TTL:             sdk.Int64(60),
					ResourceRecords: []r53types.ResourceRecord{{Value: sdk.String("10.80.0.4")}},
				},
			}}},
		})

		return err
	}

	l.check(change(*own.Id, "etcd-a."+v1alpha1.EtcdZone("demo")))
	l.denied("change another name of the zone", change(*own.Id, "api."+v1alpha1.EtcdZone("demo")))
	l.denied("change a record of another zone", change(*other.HostedZone.Id, "www.shop.example.com"))

	for _, key := range l.objectsBelow("team/demo/machine/secrets/") {
		_, err := l.s3(function).GetObject(t.Context(), &s3.GetObjectInput{Bucket: sdk.String(bucket), Key: &key})
		l.denied("read "+key, err)
	}

	machines := ec2.NewFromConfig(l.config(function))
	volumes, err := machines.DescribeVolumes(t.Context(), &ec2.DescribeVolumesInput{})
	l.check(err)
	if len(volumes.Volumes) == 0 {
		t.Fatal("the function sees no volume")
	}

	for _, v := range volumes.Volumes {
		_, err := machines.CreateTags(t.Context(), &ec2.CreateTagsInput{
			Resources: []string{*v.VolumeId},
			Tags:      []ec2types.Tag{{Key: sdk.String("slipway.dev/etcd-slot"), Value: sdk.String("b")}},
		})
		l.denied("tag a volume", err)
	}

	_, err = machines.TerminateInstances(t.Context(), &ec2.TerminateInstancesInput{InstanceIds: []string{l.anyInstance()}})
	l.denied("end a machine", err)
}

// anyInstance returns a machine of the lab, as root sees it.
func (l *lab) anyInstance() string {
	l.Helper()
	out, err := ec2.NewFromConfig(l.config(caller{})).DescribeInstances(l.Context(), &ec2.DescribeInstancesInput{})
	l.check(err)
	for _, r := range out.Reservations {
		for _, i := range r.Instances {
			return *i.InstanceId
		}
	}

	l.Fatal("there is no machine")

	return ""
}

// TestOperatorMovesOnlyItsVolumes: 'slipway etcd move' takes tags off the volume of a slot and ends its machine. With the
// policy of its operator, neither can be done to another cluster. Never open: the rights for the command and this test were made
// together.
func TestOperatorMovesOnlyItsVolumes(t *testing.T) {
	l := newLab(t)
	l.createCluster()
	operator := ec2.NewFromConfig(l.config(l.user("operator", l.policies("demo-2"))))
	root := ec2.NewFromConfig(l.config(caller{}))
	found, err := root.DescribeVolumes(t.Context(), &ec2.DescribeVolumesInput{
		Filters: []ec2types.Filter{{Name: sdk.String("tag:slipway.dev/cluster"), Values: []string{"demo"}}},
	})
	l.check(err)
	if len(found.Volumes) == 0 {
		t.Fatal("the cluster has no volume")
	}

	for _, v := range found.Volumes {
		_, err := operator.DeleteTags(t.Context(), &ec2.DeleteTagsInput{
			Resources: []string{*v.VolumeId}, Tags: []ec2types.Tag{{Key: sdk.String("slipway.dev/etcd-slot")}},
		})
		l.denied("take the tag off a volume", err)
		_, err = operator.DeleteVolume(t.Context(), &ec2.DeleteVolumeInput{VolumeId: v.VolumeId})
		l.denied("delete a volume", err)
	}

	_, err = operator.TerminateInstances(t.Context(), &ec2.TerminateInstancesInput{InstanceIds: []string{l.anyInstance()}})
	l.denied("end a machine", err)
}

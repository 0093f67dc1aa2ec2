// SPDX-License-Identifier: Apache-2.0

package ec2_test

import (
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	client "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

// copyImage copies the public image and returns the id of the copy.
func (r region) copyImage(t *testing.T, name string) string {
	t.Helper()
	out := must[*client.CopyImageOutput](t)(r.CopyImage(t.Context(), &client.CopyImageInput{
		Name: &name, SourceImageId: aws.String(image), SourceRegion: aws.String("us-east-1"),
		TagSpecifications: []types.TagSpecification{{
			ResourceType: types.ResourceTypeImage, Tags: []types.Tag{{Key: aws.String("team"), Value: aws.String("a")}},
		}},
	}))
	return *out.ImageId
}

func TestCopiedImages(t *testing.T) {
	r := newRegion(t)
	ctx := t.Context()
	_, subnet := r.createVPCWithSubnet(t)
	launch := func(id string) (*client.RunInstancesOutput, error) {
		return r.RunInstances(ctx, &client.RunInstancesInput{
			ImageId: &id, InstanceType: "t3.medium", MinCount: aws.Int32(1), MaxCount: aws.Int32(1), SubnetId: &subnet,
		})
	}
	id := r.copyImage(t, "our-debian")
	describe := func(in client.DescribeImagesInput) []types.Image {
		return must[*client.DescribeImagesOutput](t)(r.DescribeImages(ctx, &in)).Images
	}
	own := describe(client.DescribeImagesInput{Owners: []string{"self"}})
	if len(own) != 1 || *own[0].ImageId != id || own[0].State != types.ImageStatePending || *own[0].Public || len(own[0].Tags) != 1 {
		t.Fatalf("own images: %+v", own)
	}
	if _, err := launch(id); code(err) != "InvalidAMIID.Unavailable" {
		t.Errorf("launched from a pending image: %v", err)
	}
	r.clock.Add(time.Minute)
	copied := describe(client.DescribeImagesInput{ImageIds: []string{id}})[0]
	snapshot := aws.ToString(copied.BlockDeviceMappings[0].Ebs.SnapshotId)
	if copied.State != types.ImageStateAvailable || *copied.Name != "our-debian" || *copied.OwnerId != "000000000000" || snapshot == "" {
		t.Errorf("the copy: %+v", copied)
	}
	out, err := launch(id)
	if err != nil || *out.Instances[0].ImageId != id || *out.Instances[0].RootDeviceName != "/dev/xvda" {
		t.Fatalf("launched %+v, %v", out, err)
	}

	_, err = r.DeleteSnapshot(ctx, &client.DeleteSnapshotInput{SnapshotId: &snapshot})
	if code(err) != "InvalidSnapshot.InUse" {
		t.Errorf("deleted the snapshot of an image: %v", err)
	}
	must[*client.DeregisterImageOutput](t)(r.DeregisterImage(ctx, &client.DeregisterImageInput{ImageId: &id}))
	if _, err := launch(id); code(err) != "InvalidAMIID.Unavailable" {
		t.Errorf("launched from a deregistered image: %v", err)
	}
	if _, err := r.DescribeImages(ctx, &client.DescribeImagesInput{ImageIds: []string{id}}); code(err) != "InvalidAMIID.Unavailable" {
		t.Errorf("described a deregistered image: %v", err)
	}
	if own := describe(client.DescribeImagesInput{Owners: []string{"self"}}); len(own) != 0 {
		t.Errorf("own images after deregistration: %+v", own)
	}
	must[*client.DeleteSnapshotOutput](t)(r.DeleteSnapshot(ctx, &client.DeleteSnapshotInput{SnapshotId: &snapshot}))
	r.copyImage(t, "our-debian") // the name is free again
}

func TestCopyImageRefuses(t *testing.T) {
	r := newRegion(t)
	r.copyImage(t, "taken")
	for name, tt := range map[string]struct {
		change func(*client.CopyImageInput)
		want   string
	}{
		"short name":     {func(in *client.CopyImageInput) { in.Name = aws.String("ab") }, "InvalidAMIName.Malformed"},
		"taken name":     {func(in *client.CopyImageInput) { in.Name = aws.String("taken") }, "InvalidAMIName.Duplicate"},
		"no such image":  {func(in *client.CopyImageInput) { in.SourceImageId = aws.String("ami-0000000000000dead") }, "InvalidAMIID.NotFound"},
		"another region": {func(in *client.CopyImageInput) { in.SourceRegion = aws.String("eu-west-1") }, "UnsupportedOperation"},
		"encrypted":      {func(in *client.CopyImageInput) { in.Encrypted = aws.Bool(true) }, "UnsupportedOperation"},
		"key alone":      {func(in *client.CopyImageInput) { in.KmsKeyId = aws.String("alias/a") }, "InvalidParameterDependency"},
	} {
		t.Run(name, func(t *testing.T) {
			in := client.CopyImageInput{Name: aws.String("copy"), SourceImageId: aws.String(image), SourceRegion: aws.String("us-east-1")}
			tt.change(&in)
			if _, err := r.CopyImage(t.Context(), &in); code(err) != tt.want {
				t.Errorf("%v, want %s", err, tt.want)
			}
		})
	}
	_, err := r.DeregisterImage(t.Context(), &client.DeregisterImageInput{ImageId: aws.String(image)})
	if code(err) != "AuthFailure" {
		t.Errorf("deregistered an image of another account: %v", err)
	}
}

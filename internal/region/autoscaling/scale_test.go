// SPDX-License-Identifier: Apache-2.0

package autoscaling_test

import (
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	as "github.com/aws/aws-sdk-go-v2/service/autoscaling"
	ec2client "github.com/aws/aws-sdk-go-v2/service/ec2"
)

// BenchmarkFourHundredInstances measures the cost of records only: a group of 400 instances comes into service and is described.
func BenchmarkFourHundredInstances(b *testing.B) {
	for b.Loop() {
		s := newStack(b)
		g := s.createTestNetwork(b.Context(), b)
		s.createGroup(b, g, 0)
		_, err := s.as.UpdateAutoScalingGroup(b.Context(), &as.UpdateAutoScalingGroupInput{
			AutoScalingGroupName: aws.String("nodes"), MaxSize: aws.Int32(400), DesiredCapacity: aws.Int32(400),
		})
		if err != nil {
			b.Fatal(err)
		}
		s.advanceClock(b)
		pages, n := ec2client.NewDescribeInstancesPaginator(s.ec2, &ec2client.DescribeInstancesInput{}), 0
		for pages.HasMorePages() {
			out, err := pages.NextPage(b.Context())
			if err != nil {
				b.Fatal(err)
			}
			n += len(out.Reservations)
		}
		if n != 400 || len(s.targets(b, g.targets)) != 400 {
			b.Fatalf("%d instances, %d targets", n, len(s.targets(b, g.targets)))
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/s3"
)

// runKubectlQuietly runs kubectl without an entry in the log of the test.
func (e *environment) runKubectlQuietly(args ...string) error {
	cmd := exec.Command(kubectlPath(filepath.Dir(e.cache)), append([]string{"--kubeconfig", e.kubeconfig()}, args...)...)
	cmd.Env = os.Environ()
	return cmd.Run()
}

// readSettings returns the settings of the region.
func (e *environment) readSettings() (s struct{ ID string }) {
	e.t.Helper()
	b, err := os.ReadFile(filepath.Join(e.cache, "region", "settings.json"))
	if err != nil {
		e.t.Fatal(err)
	}
	if err := json.Unmarshal(b, &s); err != nil {
		e.t.Fatal(err)
	}
	return s
}

// fetchWorkerCredentials gets a worker's credentials from the metadata service, from inside the
// worker's network, as root who first removes the rules of the agent.
func (e *environment) fetchWorkerCredentials(id string) aws.Config {
	e.t.Helper()
	// The agent restores the rules that keep other processes from the metadata service every few seconds, also between two calls.
	script := `b=http://169.254.169.254/latest
ask() { curl -sf -H "X-aws-ec2-metadata-token: $t" $b/meta-data/iam/security-credentials/$1; }
for attempt in 1 2 3 4 5; do
  nft delete table inet slipway_metadata 2>/dev/null
  t=$(curl -sf -X PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 300' $b/api/token) && role=$(ask) && ask "$role" && exit
done
exit 1`
	out, err := exec.Command("ip", "netns", "exec", "slw-"+e.readSettings().ID+"-"+id, "sh", "-c", script).Output()
	if err != nil {
		e.t.Fatalf("ask the metadata service from %s: %v", id, err)
	}
	var c struct{ AccessKeyId, SecretAccessKey, Token string }
	if err := json.Unmarshal(out, &c); err != nil {
		e.t.Fatalf("credentials of %s: %v", id, err)
	}
	cfg := e.aws.Copy()
	cfg.Credentials = credentials.NewStaticCredentialsProvider(c.AccessKeyId, c.SecretAccessKey, c.Token)
	return cfg
}

// checkWorkerRole makes real calls with a worker's credentials. All reads of secrets and all
// mutations must be denied.
func checkWorkerRole(e *environment) {
	var worker, victim string
	for id := range e.listMachines("worker") {
		worker = id
	}
	for id := range e.listMachines("control-plane") {
		victim = id
	}
	cfg := e.fetchWorkerCredentials(worker)
	ctx := e.t.Context()
	store, compute, scaling := s3.NewFromConfig(cfg, func(o *s3.Options) { o.UsePathStyle = true }), ec2.NewFromConfig(cfg), autoscaling.NewFromConfig(cfg)
	all, err := s3.NewFromConfig(e.aws, func(o *s3.Options) { o.UsePathStyle = true }).ListObjectsV2(ctx, &s3.ListObjectsV2Input{Bucket: aws.String(bucket)})
	if err != nil {
		e.t.Fatal(err)
	}
	denied := func(what string, err error) {
		e.t.Helper()
		if err == nil {
			e.t.Errorf("a worker is allowed to %s", what)
		} else if text := err.Error(); !strings.Contains(text, "AccessDenied") && !strings.Contains(text, "UnauthorizedOperation") && !strings.Contains(text, "403") {
			e.t.Errorf("%s: failed for another reason: %v", what, err)
		}
	}
	secrets := 0
	for _, o := range all.Contents {
		if !strings.Contains(*o.Key, "/secrets/") && !strings.Contains(*o.Key, "/pki/private/") && !strings.Contains(*o.Key, "/controlplane/") && !strings.Contains(*o.Key, "/etcd/") {
			continue
		}
		secrets++
		_, err := store.GetObject(ctx, &s3.GetObjectInput{Bucket: aws.String(bucket), Key: o.Key})
		denied("read "+*o.Key, err)
	}
	if secrets < 8 {
		e.t.Errorf("only %d secret objects were tried", secrets)
	}
	for _, key := range []string{clusterName + "/machine/worker/x", clusterName + "/machine/etcd/initialized", clusterName + "/cluster.yaml"} {
		_, err = store.PutObject(ctx, &s3.PutObjectInput{Bucket: aws.String(bucket), Key: &key, Body: strings.NewReader("x")})
		denied("write "+key, err)
		_, err = store.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: aws.String(bucket), Key: &key})
		denied("delete "+key, err)
	}
	_, err = compute.TerminateInstances(ctx, &ec2.TerminateInstancesInput{InstanceIds: []string{victim}})
	denied("terminate a control-plane machine", err)
	_, err = compute.AttachVolume(ctx, &ec2.AttachVolumeInput{VolumeId: aws.String(e.listVolumes()["a"][0]), InstanceId: &worker, Device: aws.String("/dev/sdf")})
	denied("attach etcd's volume", err)
	_, err = compute.CreateTags(ctx, &ec2.CreateTagsInput{Resources: []string{worker}, Tags: []ec2types.Tag{{Key: aws.String("slipway.dev/role"), Value: aws.String("control-plane")}}})
	denied("tag itself", err)
	_, err = compute.DescribeInstances(ctx, &ec2.DescribeInstancesInput{})
	denied("list machines", err)
	_, err = scaling.SetDesiredCapacity(ctx, &autoscaling.SetDesiredCapacityInput{AutoScalingGroupName: aws.String("workers." + clusterName), DesiredCapacity: aws.Int32(9)})
	denied("resize a group", err)
	_, err = iam.NewFromConfig(cfg).CreateUser(ctx, &iam.CreateUserInput{UserName: aws.String("mallory")})
	denied("create a user", err)
}

// checkRegionRestart kills the region's process and starts it again. Machines and data must
// survive.
func checkRegionRestart(e *environment) {
	e.killRegion()
	e.runSlipway("region", "start")
	e.waitHealthy(3 * time.Minute)
	checkEmptyPlan(e)
	checkData(e)
}

func (e *environment) killRegion() {
	e.t.Helper()
	var st struct{ PID int }
	if err := json.Unmarshal([]byte(e.runSlipway("region", "status", "-o", "json")), &st); err != nil || st.PID == 0 {
		e.t.Fatalf("no process: %v", err)
	}
	if err := syscall.Kill(st.PID, syscall.SIGKILL); err != nil {
		e.t.Fatal(err)
	}
	e.waitUntil("the region's process ends", 10*time.Second, func() error {
		if b, err := os.ReadFile("/proc/" + strconv.Itoa(st.PID) + "/stat"); err == nil && !strings.Contains(string(b), ") Z ") {
			return fmt.Errorf("process %d is still running", st.PID)
		}
		return nil
	})
}

func deleteCluster(e *environment) {
	e.runSlipway("delete", "cluster", clusterName, "--yes")
	if left := e.listTagged(); len(left) > 0 {
		e.t.Errorf("left behind:\n%s", strings.Join(left, "\n"))
	}
}

// listTagged lists all resources with the cluster's tag or name.
func (e *environment) listTagged() (left []string) {
	e.t.Helper()
	ctx := e.t.Context()
	e.waitForDeletedVolumes(ctx)
	tags, err := ec2.NewFromConfig(e.aws).DescribeTags(ctx, &ec2.DescribeTagsInput{Filters: []ec2types.Filter{
		{Name: aws.String("key"), Values: []string{"slipway.dev/cluster"}}, {Name: aws.String("value"), Values: []string{clusterName}},
	}})
	if err != nil {
		e.t.Fatal(err)
	}
	gone := e.listTerminated(ctx)
	for _, tag := range tags.Tags {
		if !gone[*tag.ResourceId] {
			left = append(left, string(tag.ResourceType)+" "+*tag.ResourceId)
		}
	}
	asgs, err := autoscaling.NewFromConfig(e.aws).DescribeAutoScalingGroups(ctx, &autoscaling.DescribeAutoScalingGroupsInput{})
	if err != nil {
		e.t.Fatal(err)
	}
	for _, g := range asgs.AutoScalingGroups {
		left = append(left, "auto scaling group "+*g.AutoScalingGroupName)
	}
	lbs, err := elasticloadbalancingv2.NewFromConfig(e.aws).DescribeLoadBalancers(ctx, &elasticloadbalancingv2.DescribeLoadBalancersInput{})
	if err != nil {
		e.t.Fatal(err)
	}
	for _, b := range lbs.LoadBalancers {
		left = append(left, "load balancer "+*b.LoadBalancerName)
	}
	roles, err := listIAM(ctx, iam.NewFromConfig(e.aws), clusterName)
	if err != nil {
		e.t.Fatal(err)
	}
	left = append(left, roles...)
	objects, err := s3.NewFromConfig(e.aws, func(o *s3.Options) { o.UsePathStyle = true }).ListObjectsV2(ctx, &s3.ListObjectsV2Input{Bucket: aws.String(bucket), Prefix: aws.String(clusterName + "/")})
	if err != nil {
		e.t.Fatal(err)
	}
	for _, o := range objects.Contents {
		left = append(left, "object "+*o.Key)
	}
	return left
}

// waitForDeletedVolumes waits for the volumes that are being deleted: AWS answers DeleteVolume before they are.
func (e *environment) waitForDeletedVolumes(ctx context.Context) {
	e.t.Helper()
	c := ec2.NewFromConfig(e.aws)
	out, err := c.DescribeVolumes(ctx, &ec2.DescribeVolumesInput{Filters: []ec2types.Filter{{Name: aws.String("status"), Values: []string{"deleting"}}}})
	if err != nil {
		e.t.Fatal(err)
	}
	for _, v := range out.Volumes {
		in := &ec2.DescribeVolumesInput{VolumeIds: []string{*v.VolumeId}}
		if err := ec2.NewVolumeDeletedWaiter(c).Wait(ctx, in, time.Minute); err != nil {
			e.t.Errorf("volume %s is not deleted: %v", *v.VolumeId, err)
		}
	}
}

// listTerminated returns the terminated instances and deleted NAT gateways, which AWS continues to
// list for some time.
func (e *environment) listTerminated(ctx context.Context) map[string]bool {
	e.t.Helper()
	gone := map[string]bool{}
	c := ec2.NewFromConfig(e.aws)
	out, err := c.DescribeInstances(ctx, &ec2.DescribeInstancesInput{Filters: []ec2types.Filter{{Name: aws.String("instance-state-name"), Values: []string{"terminated"}}}})
	if err != nil {
		e.t.Fatal(err)
	}
	for _, r := range out.Reservations {
		for _, i := range r.Instances {
			gone[*i.InstanceId] = true
		}
	}
	nats, err := c.DescribeNatGateways(ctx, &ec2.DescribeNatGatewaysInput{Filter: []ec2types.Filter{{Name: aws.String("state"), Values: []string{"deleted"}}}})
	if err != nil {
		e.t.Fatal(err)
	}
	for _, n := range nats.NatGateways {
		gone[*n.NatGatewayId] = true
	}
	return gone
}

func destroyAfterKill(e *environment) {
	id := e.readSettings().ID
	e.killRegion()
	e.runSlipway("region", "destroy", "--yes")
	if left := leftovers(id); len(left) > 0 {
		e.t.Errorf("left on this machine:\n%s", strings.Join(left, "\n"))
	}
}

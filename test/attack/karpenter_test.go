// SPDX-License-Identifier: Apache-2.0

package attack_test

import (
	"slices"
	"strings"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/slipway-k8s/slipway/internal/infra/iampolicy"
	"github.com/slipway-k8s/slipway/internal/region/authz"
	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

const (
	karpenterName = "karpenter"
	karpenterRole = rolePrefix + "kube-system." + karpenterName + ".us-east-1"
	// karpenterGroup is the group whose machines Karpenter launches.
	karpenterGroup = "burst"
)

// karpenterManifest is the manifest of that group.
const karpenterManifest = `apiVersion: slipway.dev/v1alpha1
kind: InstanceGroup
metadata: {name: burst, labels: {slipway.dev/cluster: demo}}
spec:
  role: Worker
  manager: Karpenter
  maxSize: 3
  mixedInstancesPolicy: {instances: [m5.large, m5.xlarge]}
  nodeLabels: {example.com/kind: burst}
  rootVolume: {size: 20}
`

// karpenterPolicies returns the policy of Karpenter's role in cluster demo, and its permissions boundary.
func karpenterPolicies(l *lab) [2][]authz.Policy {
	l.Helper()
	in := iampolicy.Input{Partition: "aws", Account: regiontest.AccountID}

	return [2][]authz.Policy{
		l.parse([]iampolicy.Policy{iampolicy.BuildKarpenterPolicy(iampolicy.KarpenterInput{
			Partition: "aws",
			Region:    "us-east-1",
			Account:   regiontest.AccountID,
			Cluster:   "demo",
			ClusterID: "0123456789abcdef",
			Groups:    []string{karpenterGroup},
			Images:    []string{"ami-0123456789abcdef0"},
			Role:      iamOf + "role" + rolePath + "demo.worker.us-east-1",
			Profile:   iamOf + "instance-profile" + rolePath + "demo.worker.us-east-1",
			Keys:      []string{"arn:aws:kms:us-east-1:" + regiontest.AccountID + ":key/0123"},
		})}),
		l.parse([]iampolicy.Policy{iampolicy.BuildKarpenterBoundary(in)}),
	}
}

// karpenterLab is a lab with a cluster that has a group of Karpenter, whose role and boundary are those of the product.
type karpenterLab struct {
	podLab
	ec2    *ec2.Client // of the account's root
	worker ec2types.Instance
	id     string // of the cluster
}

func newKarpenterLab(t *testing.T) karpenterLab {
	t.Helper()
	p := newPodLab(t)
	k := karpenterLab{podLab: p, ec2: ec2.NewFromConfig(p.config(caller{}))}
	k.worker = k.machineOf("worker")
	k.id = k.clusterID()
	manifests := k.must(caller{}, 0, "get", "all", "demo", "-o", "yaml") + "---\n" + karpenterManifest
	k.must(caller{}, 0, "replace", "-f", k.temporaryFile("demo.yaml", manifests), "--yes")
	k.must(caller{}, 0, "apply", "demo", "--yes")

	return k
}

// machineOf returns a running machine of a role.
func (k *karpenterLab) machineOf(role string) ec2types.Instance {
	k.Helper()

	return k.instanceOf(k.ec2, role)
}

// profile returns the name of a machine's instance profile.
func profile(i ec2types.Instance) *string {
	arn := *i.IamInstanceProfile.Arn

	return sdk.String(arn[strings.LastIndex(arn, "/")+1:])
}

// ofNodePool are the tags that Karpenter gives what it creates.
func (k *karpenterLab) ofNodePool(kind ec2types.ResourceType, more ...string) ec2types.TagSpecification {
	var all []ec2types.Tag
	pairs := append([]string{
		"kubernetes.io/cluster/demo", "owned", "eks:eks-cluster-name", "demo", "karpenter.sh/nodepool", karpenterGroup,
		"slipway.dev/cluster", "demo", "slipway.dev/id", k.id, "slipway.dev/role", "worker", "slipway.dev/group", karpenterGroup,
	}, more...)
	for i := 0; i+2 < len(pairs); i += 2 { // a tag that is given again replaces the former one
		if at := slices.Index(pairs[i+2:], pairs[i]); at >= 0 && at%2 == 0 {
			pairs = slices.Delete(pairs, i, i+2)
			i -= 2
		}
	}
	for i := 0; i < len(pairs); i += 2 {
		all = append(all, ec2types.Tag{Key: &pairs[i], Value: &pairs[i+1]})
	}

	return ec2types.TagSpecification{ResourceType: kind, Tags: all}
}

// launchOfKarpenter is what Karpenter asks for.
type launchOfKarpenter struct {
	template *ec2.CreateLaunchTemplateInput
	fleet    *ec2.CreateFleetInput
}

// launch makes the calls of Karpenter for one machine with changes.
func (k *karpenterLab) launch(api *ec2.Client, name string, change func(*launchOfKarpenter)) error {
	k.Helper()
	tags := k.ofNodePool("network-interface").Tags
	l := launchOfKarpenter{
		template: &ec2.CreateLaunchTemplateInput{
			LaunchTemplateName: sdk.String("karpenter.k8s.aws/" + name),
			TagSpecifications:  []ec2types.TagSpecification{k.ofNodePool("launch-template")},
			LaunchTemplateData: &ec2types.RequestLaunchTemplateData{
				ImageId:            k.worker.ImageId,
				IamInstanceProfile: &ec2types.LaunchTemplateIamInstanceProfileSpecificationRequest{Name: profile(k.worker)},
				MetadataOptions:    &ec2types.LaunchTemplateInstanceMetadataOptionsRequest{HttpTokens: "required"},
				NetworkInterfaces: []ec2types.LaunchTemplateInstanceNetworkInterfaceSpecificationRequest{{
					DeviceIndex: sdk.Int32(0), Groups: []string{*k.worker.SecurityGroups[0].GroupId},
				}},
				TagSpecifications: []ec2types.LaunchTemplateTagSpecificationRequest{
					{ResourceType: "network-interface", Tags: tags}, {ResourceType: "spot-instances-request", Tags: tags},
				},
			},
		},
		fleet: &ec2.CreateFleetInput{
			Type:                        ec2types.FleetTypeInstant,
			TargetCapacitySpecification: &ec2types.TargetCapacitySpecificationRequest{TotalTargetCapacity: sdk.Int32(1), DefaultTargetCapacityType: "spot"},
			TagSpecifications:           []ec2types.TagSpecification{k.ofNodePool("instance"), k.ofNodePool("volume"), k.ofNodePool("fleet")},
			LaunchTemplateConfigs: []ec2types.FleetLaunchTemplateConfigRequest{{
				LaunchTemplateSpecification: &ec2types.FleetLaunchTemplateSpecificationRequest{LaunchTemplateName: sdk.String("karpenter.k8s.aws/" + name), Version: sdk.String("$Latest")},
				Overrides:                   []ec2types.FleetLaunchTemplateOverridesRequest{{InstanceType: "t3.medium", SubnetId: k.worker.SubnetId}},
			}},
		},
	}
	change(&l)
	if l.template != nil {
		if _, err := api.CreateLaunchTemplate(k.Context(), l.template); err != nil {
			return err
		}
	}
	_, err := api.CreateFleet(k.Context(), l.fleet)

	return err
}

// TestKarpenterIsLimited: with the role of the channel, machines can be launched as workers only: with the workers' role, security
// group and image in the cluster's subnets, with the tags of Karpenter and the safe metadata service. Machines and launch
// templates of others can be neither ended nor used nor tagged. Never open: the role's policy and this test were made together.
func TestKarpenterIsLimited(t *testing.T) {
	k := newKarpenterLab(t)
	controlPlane := k.machineOf("control-plane")
	c := k.assumeAs(karpenterRole, "kube-system", karpenterName)
	mine := ec2.NewFromConfig(k.config(c))
	k.check(k.launch(mine, "good", func(*launchOfKarpenter) {}))

	vpcs, err := k.ec2.DescribeSubnets(t.Context(), &ec2.DescribeSubnetsInput{Filters: []ec2types.Filter{{Name: sdk.String("default-for-az"), Values: []string{"true"}}}})
	k.check(err)
	templates, err := k.ec2.DescribeLaunchTemplates(t.Context(), &ec2.DescribeLaunchTemplatesInput{Filters: []ec2types.Filter{{Name: sdk.String("tag:slipway.dev/address"), Values: []string{"*"}}}})
	k.check(err)
	foreign := templates.LaunchTemplates[0].LaunchTemplateId
	images, err := k.ec2.DescribeImages(t.Context(), &ec2.DescribeImagesInput{Filters: []ec2types.Filter{{Name: sdk.String("architecture"), Values: []string{"x86_64"}}}})
	k.check(err)
	other := images.Images[0].ImageId
	if *other == *k.worker.ImageId {
		other = images.Images[1].ImageId
	}
	key := []byte("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGVXZ8nTT4a6Wb0MmJxQtuWgtCFCWRx8xFcZ2u0yqj2F")
	_, err = k.ec2.ImportKeyPair(t.Context(), &ec2.ImportKeyPairInput{KeyName: sdk.String("mine"), PublicKeyMaterial: key})
	k.check(err)

	for what, change := range map[string]func(*launchOfKarpenter){
		"launch with the role of the control plane": func(l *launchOfKarpenter) {
			l.template.LaunchTemplateData.IamInstanceProfile.Name = profile(controlPlane)
		},
		"launch in the security group of the control plane": func(l *launchOfKarpenter) {
			l.template.LaunchTemplateData.NetworkInterfaces[0].Groups = []string{*controlPlane.SecurityGroups[0].GroupId}
		},
		"launch in a subnet of others": func(l *launchOfKarpenter) {
			l.fleet.LaunchTemplateConfigs[0].Overrides[0].SubnetId = vpcs.Subnets[0].SubnetId
		},
		"launch another image":                func(l *launchOfKarpenter) { l.template.LaunchTemplateData.ImageId = other },
		"launch another image by an override": func(l *launchOfKarpenter) { l.fleet.LaunchTemplateConfigs[0].Overrides[0].ImageId = other },
		"launch with a key pair":              func(l *launchOfKarpenter) { l.template.LaunchTemplateData.KeyName = sdk.String("mine") },
		"launch with metadata for everybody":  func(l *launchOfKarpenter) { l.template.LaunchTemplateData.MetadataOptions.HttpTokens = "optional" },
		"make a template without tags":        func(l *launchOfKarpenter) { l.template.TagSpecifications = nil },
		"launch without tags":                 func(l *launchOfKarpenter) { l.fleet.TagSpecifications = nil },
		"launch what Slipway takes for a resource of its": func(l *launchOfKarpenter) {
			l.fleet.TagSpecifications[0] = k.ofNodePool("instance", "slipway.dev/address", "instance/x")
		},
		"launch a machine of the control plane": func(l *launchOfKarpenter) {
			l.fleet.TagSpecifications[0] = k.ofNodePool("instance", "slipway.dev/role", "control-plane")
		},
		"launch a machine of another group": func(l *launchOfKarpenter) {
			l.fleet.TagSpecifications[0] = k.ofNodePool("instance", "slipway.dev/group", "nodes")
		},
		"launch a machine of another cluster": func(l *launchOfKarpenter) {
			l.fleet.TagSpecifications[0] = k.ofNodePool("instance", "slipway.dev/cluster", "prod")
		},
		"launch from a template of the cluster": func(l *launchOfKarpenter) {
			l.template = nil
			l.fleet.LaunchTemplateConfigs[0].LaunchTemplateSpecification = &ec2types.FleetLaunchTemplateSpecificationRequest{LaunchTemplateId: foreign, Version: sdk.String("$Latest")}
		},
	} {
		k.denied(what, k.launch(mine, strings.ReplaceAll(what, " ", "-"), change))
	}

	_, err = mine.TerminateInstances(t.Context(), &ec2.TerminateInstancesInput{InstanceIds: []string{*k.worker.InstanceId}})
	k.denied("end a machine of an Auto Scaling group", err)
	_, err = mine.CreateTags(t.Context(), &ec2.CreateTagsInput{Resources: []string{*k.worker.InstanceId}, Tags: k.ofNodePool("instance").Tags})
	k.denied("tag a machine of an Auto Scaling group", err)
	_, err = mine.DeleteLaunchTemplate(t.Context(), &ec2.DeleteLaunchTemplateInput{LaunchTemplateId: foreign})
	k.denied("delete a launch template of the cluster", err)
	_, err = mine.CreateLaunchTemplateVersion(t.Context(), &ec2.CreateLaunchTemplateVersionInput{
		LaunchTemplateId: foreign, SourceVersion: sdk.String("1"), LaunchTemplateData: &ec2types.RequestLaunchTemplateData{UserData: sdk.String("")},
	})
	k.denied("change a launch template of the cluster", err)
}

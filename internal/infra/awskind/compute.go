// SPDX-License-Identifier: Apache-2.0

package awskind

import "github.com/slipway-k8s/slipway/internal/infra/graph"

// renameHint is the hint of kinds whose resources can exist side by side under different names.
const renameHint = "add a resource with a new name to the manifest, move its users to it, " +
	"then remove the old one"

// LaunchTemplate is an EC2 launch template: how an instance is started. A change creates a new version; the
// identity stays.
type LaunchTemplate struct {
	// Name is unique in the account and region.
	Name string             `aws:"LaunchTemplateName,immutable" tf:"name"`
	Data LaunchTemplateData `aws:"LaunchTemplateData" tf:"-,inline"`
	Tags Tags               `aws:"TagSpecifications,tags" tf:"tags" cfn:"of=launch-template"`
}

// LaunchTemplateData is the content of one version of a launch template.
type LaunchTemplateData struct {
	// ImageID is the AMI, such as ami-0123.
	ImageID string `aws:"ImageId,param" cfn:"type=AWS::EC2::Image::Id"`
	// InstanceType of the instances; a [MixedInstancesPolicy] overrides it.
	InstanceType string `aws:"InstanceType,param"`
	// KeyName is the SSH key pair; unset: none.
	KeyName graph.Ref[KeyPair] `aws:"KeyName,whole"`
	Profile ProfileSpec        `aws:"IamInstanceProfile"` // gives the instances their IAM role
	// SecurityGroups of the primary network interface.
	SecurityGroups []graph.Ref[SecurityGroup] `aws:"SecurityGroupIds,set" tf:"vpc_security_group_ids"`
	// BlockDevices lists the volumes that are created with an instance: the root volume only.
	BlockDevices []BlockDevice   `aws:"BlockDeviceMappings"`
	Metadata     MetadataOptions `aws:"MetadataOptions"` // IMDS settings
	// Hostname is how EC2 names the instances; unset: as their subnet says.
	Hostname HostnameOptions `aws:"PrivateDnsNameOptions,whole"`
	// Tags of the instances, volumes and network interfaces that the template starts.
	Tags []TagSpecification `aws:"TagSpecifications"`
	// UserData is the boot script, base64-encoded.
	UserData graph.Text `aws:"UserData"`
}

// ProfileSpec names an instance profile.
type ProfileSpec struct {
	Name graph.Ref[InstanceProfile] `aws:"Name"` // of the instance profile
}

// BlockDevice is a volume that EC2 creates with an instance.
type BlockDevice struct {
	// DeviceName such as /dev/xvda.
	DeviceName string `aws:"DeviceName"`
	EBS        EBS    `aws:"Ebs"`
}

// EBS describes the volume of a [BlockDevice].
type EBS struct {
	VolumeType string `aws:"VolumeType"`       // such as gp3
	VolumeSize int    `aws:"VolumeSize,param"` // GiB
	IOPS       int    `aws:"Iops"`             // 0: the default of the type
	Throughput int    `aws:"Throughput"`       // MiB/s; 0: the default of the type
	Encrypted  bool   `aws:"Encrypted"`        // always true
	// KMSKey is the ARN of the key; unset: the account's default key for EBS.
	KMSKey              graph.Text `aws:"KmsKeyId"`
	DeleteOnTermination bool       `aws:"DeleteOnTermination"` // true for a root volume
}

// MetadataOptions configures the instance metadata service (IMDS).
type MetadataOptions struct {
	Endpoint string `aws:"HttpEndpoint"`            // enabled or disabled
	Tokens   string `aws:"HttpTokens"`              // required: IMDSv2 only
	HopLimit int    `aws:"HttpPutResponseHopLimit"` // network hops; 1 keeps pods from the metadata service
}

// HostnameOptions is how EC2 names an instance.
type HostnameOptions struct {
	Type string `aws:"HostnameType"` // ip-name or resource-name
	// ResourceNameA makes EC2's DNS server answer with the address of the instance when it is asked for its resource
	// name. It always does for the name made of the address.
	ResourceNameA bool `aws:"EnableResourceNameDnsARecord"`
}

// TagSpecification is the tags of one type of resource that EC2 creates with an instance.
type TagSpecification struct {
	ResourceType string `aws:"ResourceType"` // instance, volume or network-interface
	Tags         Tags   `aws:"Tags"`
}

// Kind implements [graph.Resource].
func (LaunchTemplate) Kind() graph.Kind {
	return graph.Kind{
		Name:               "launch-template",
		Terraform:          "aws_launch_template",
		CloudFormation:     "AWS::EC2::LaunchTemplate",
		Attributes:         map[string]string{"LatestVersionNumber": "latest_version"},
		VolatileAttributes: []string{"LatestVersionNumber"},
		Lifecycle: graph.Lifecycle{
			Replacement:   graph.ForbidReplacement,
			ForbiddenHint: renameHint,
			UpdateNote:    "a new version; running machines keep theirs until they are replaced",
		},
	}
}

// AutoScalingGroup keeps a number of instances running. All of its tags are propagated to them.
type AutoScalingGroup struct {
	Name    string `aws:"AutoScalingGroupName,immutable" tf:"name"`
	MinSize int    `aws:"MinSize,always,scale" cfn:"text"` // machines
	MaxSize int    `aws:"MaxSize,always,scale" cfn:"text"` // machines
	// DesiredCapacity is set on creation; from then on an autoscaler owns it. A rendered template leaves it
	// out, so the group starts with MinSize.
	DesiredCapacity int `aws:"DesiredCapacity" tf:"-" cfn:"-"`
	// Template is the launch template; unset if MixedInstances is set.
	Template TemplateSpec `aws:"LaunchTemplate"`
	// MixedInstances replaces Template for groups of several instance types or with spot instances.
	MixedInstances MixedInstancesPolicy `aws:"MixedInstancesPolicy"`
	// CapacityRebalance replaces spot instances that AWS is about to interrupt.
	CapacityRebalance bool `aws:"CapacityRebalance,always"`
	// WarmPool is a separate resource in CloudFormation.
	WarmPool         WarmPool                 `aws:"WarmPool,whole" cfn:"-,apart=AWS::AutoScaling::WarmPool,with=AutoScalingGroupName"`
	Subnets          []graph.Ref[Subnet]      `aws:"VPCZoneIdentifier,set" tf:"vpc_zone_identifier"`
	TargetGroups     []graph.Ref[TargetGroup] `aws:"TargetGroupARNs,set" tf:"target_group_arns"`
	HealthCheckType  string                   `aws:"HealthCheckType" cfn:"-"` // always EC2, CloudFormation's default
	HealthCheckGrace int                      `aws:"HealthCheckGracePeriod"`  // seconds
	// Notifications are separate resources in Terraform.
	Notifications []GroupNotification `aws:"NotificationConfigurations,set,whole" tf:"-,apart=aws_autoscaling_notification,with=group_names[]"`
	Tags          Tags                `aws:"Tags,tags,propagated" tf:"tag"`
}

// TemplateSpec is one version of a launch template. The version is a number, and an existing group keeps it until a
// rolling update sets another one, see [AutoScalingGroup.KeepFrom].
type TemplateSpec struct {
	ID      graph.Ref[LaunchTemplate] `aws:"LaunchTemplateId" tf:"id"`
	Version graph.Text                `aws:"Version"` // the number of the version
}

// Kind implements [graph.Resource].
func (AutoScalingGroup) Kind() graph.Kind {
	return graph.Kind{
		Name:                 "autoscaling-group",
		Terraform:            "aws_autoscaling_group",
		CloudFormation:       "AWS::AutoScaling::AutoScalingGroup",
		ImplicitDependencies: []string{"volume", "iam-role-policy", "lambda-invocation"},
		StartsMachines:       true,
		Lifecycle: graph.Lifecycle{
			Replacement:   graph.ForbidReplacement,
			ForbiddenHint: renameHint,
			// An autoscaler moves it between MinSize and MaxSize; AWS keeps it within them.
			IgnoreChanges: []string{"DesiredCapacity"},
		},
	}
}

// Volume is an EBS volume that outlives instances: one for the etcd data of each control-plane slot.
type Volume struct {
	Zone       string     `aws:"AvailabilityZone,immutable"` // such as us-east-1a
	VolumeType string     `aws:"VolumeType" tf:"type"`       // such as gp3
	Size       int        `aws:"Size,param"`                 // GiB; it can grow, not shrink
	IOPS       int        `aws:"Iops"`                       // 0: the default of the type
	Throughput int        `aws:"Throughput"`                 // MiB/s; 0: the default of the type
	Encrypted  bool       `aws:"Encrypted,immutable"`        // always true
	KMSKey     graph.Text `aws:"KmsKeyId,immutable"`         // ARN of the key
	Tags       Tags       `aws:"Tags,tags"`
}

// Kind implements [graph.Resource].
func (Volume) Kind() graph.Kind {
	return graph.Kind{
		Name:                 "volume",
		Terraform:            "aws_ebs_volume",
		CloudFormation:       "AWS::EC2::Volume",
		ImplicitDependencies: []string{"kms-key"},
		Lifecycle: graph.Lifecycle{
			Replacement:      graph.ForbidReplacement,
			ForbiddenHint:    "an etcd volume keeps its zone and its encryption; a single machine moves with: slipway etcd move",
			HoldsData:        true,
			GrowOnlyProperty: "Size",
			DeleteNote:       "the etcd data on it is lost",
		},
	}
}

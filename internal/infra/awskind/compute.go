// SPDX-License-Identifier: Apache-2.0

package awskind

import "github.com/slipway-k8s/slipway/internal/infra/graph"

// LaunchTemplate says how an instance is made. A change makes a new version; the identity stays (D4).
type LaunchTemplate struct {
	Name string             `aws:"LaunchTemplateName,immutable" tf:"name"`
	Data LaunchTemplateData `aws:"LaunchTemplateData" tf:"-,inline"`
	Tags Tags               `aws:"TagSpecifications,tags" tf:"tags" cfn:"of=launch-template"`
}

// LaunchTemplateData is what a version of a template holds.
type LaunchTemplateData struct {
	ImageID        string                     `aws:"ImageId,param" cfn:"type=AWS::EC2::Image::Id"`
	InstanceType   string                     `aws:"InstanceType,param"`
	KeyName        graph.Ref[KeyPair]         `aws:"KeyName"`
	Profile        ProfileSpec                `aws:"IamInstanceProfile"`
	SecurityGroups []graph.Ref[SecurityGroup] `aws:"SecurityGroupIds,set" tf:"vpc_security_group_ids"`
	BlockDevices   []BlockDevice              `aws:"BlockDeviceMappings"`
	Metadata       MetadataOptions            `aws:"MetadataOptions"`
	Tags           []TagSpecification         `aws:"TagSpecifications"`
	UserData       graph.Text                 `aws:"UserData"`
}

// ProfileSpec names an instance profile.
type ProfileSpec struct {
	Name graph.Ref[InstanceProfile] `aws:"Name"`
}

// BlockDevice is a volume made with the instance.
type BlockDevice struct {
	DeviceName string `aws:"DeviceName"`
	EBS        EBS    `aws:"Ebs"`
}

// EBS describes the volume of a [BlockDevice].
type EBS struct {
	VolumeType          string     `aws:"VolumeType"`
	VolumeSize          int        `aws:"VolumeSize,param"` // GiB
	IOPS                int        `aws:"Iops"`
	Throughput          int        `aws:"Throughput"` // MiB/s
	Encrypted           bool       `aws:"Encrypted"`
	KMSKey              graph.Text `aws:"KmsKeyId"`
	DeleteOnTermination bool       `aws:"DeleteOnTermination"`
}

// MetadataOptions of the instance metadata service.
type MetadataOptions struct {
	Endpoint string `aws:"HttpEndpoint"`
	Tokens   string `aws:"HttpTokens"`
	HopLimit int    `aws:"HttpPutResponseHopLimit"`
}

// TagSpecification gives tags to what an instance is made with, by type of resource.
type TagSpecification struct {
	ResourceType string `aws:"ResourceType"`
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
	}
}

// AutoScalingGroup keeps a number of instances running. Its tags are all propagated to them.
type AutoScalingGroup struct {
	Name    string `aws:"AutoScalingGroupName,immutable" tf:"name"`
	MinSize int    `aws:"MinSize,always,scale" cfn:"text"`
	MaxSize int    `aws:"MaxSize,always,scale" cfn:"text"`
	// DesiredCapacity is an autoscaler's once the group is there. A template leaves it out: it begins as MinSize.
	DesiredCapacity   int                  `aws:"DesiredCapacity" tf:"-" cfn:"-"`
	Template          TemplateSpec         `aws:"LaunchTemplate"` // or Mixed
	MixedInstances    MixedInstancesPolicy `aws:"MixedInstancesPolicy"`
	CapacityRebalance bool                 `aws:"CapacityRebalance,always"`
	// WarmPool is a resource of its own to CloudFormation.
	WarmPool         WarmPool                 `aws:"WarmPool,whole" cfn:"-,apart=AWS::AutoScaling::WarmPool,with=AutoScalingGroupName"`
	Subnets          []graph.Ref[Subnet]      `aws:"VPCZoneIdentifier,set" tf:"vpc_zone_identifier"`
	TargetGroups     []graph.Ref[TargetGroup] `aws:"TargetGroupARNs,set" tf:"target_group_arns"`
	HealthCheckType  string                   `aws:"HealthCheckType"`
	HealthCheckGrace int                      `aws:"HealthCheckGracePeriod"` // seconds
	Tags             Tags                     `aws:"Tags,tags,propagated" tf:"tag"`
}

// TemplateSpec names one version of a launch template. The number is said, so that a new version shows as a change of the group.
type TemplateSpec struct {
	ID      graph.Ref[LaunchTemplate] `aws:"LaunchTemplateId" tf:"id"`
	Version graph.Text                `aws:"Version"`
}

// Kind implements [graph.Resource].
func (AutoScalingGroup) Kind() graph.Kind {
	return graph.Kind{
		Name:                 "autoscaling-group",
		Terraform:            "aws_autoscaling_group",
		CloudFormation:       "AWS::AutoScaling::AutoScalingGroup",
		ImplicitDependencies: []string{"volume", "iam-role-policy"},
		StartsMachines:       true,
	}
}

// Volume is an EBS volume that outlives instances.
type Volume struct {
	Zone       string     `aws:"AvailabilityZone,immutable"`
	VolumeType string     `aws:"VolumeType" tf:"type"`
	Size       int        `aws:"Size,param"` // GiB; it can grow
	IOPS       int        `aws:"Iops"`
	Throughput int        `aws:"Throughput"` // MiB/s
	Encrypted  bool       `aws:"Encrypted,immutable"`
	KMSKey     graph.Text `aws:"KmsKeyId,immutable"`
	Tags       Tags       `aws:"Tags,tags"`
}

// Kind implements [graph.Resource].
func (Volume) Kind() graph.Kind {
	return graph.Kind{
		Name:                 "volume",
		Terraform:            "aws_ebs_volume",
		CloudFormation:       "AWS::EC2::Volume",
		ImplicitDependencies: []string{"kms-key"},
	}
}

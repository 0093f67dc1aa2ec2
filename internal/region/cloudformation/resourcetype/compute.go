// SPDX-License-Identifier: Apache-2.0

package resourcetype

import (
	"context"

	"github.com/slipway-k8s/slipway/internal/region/cloudformation/template"
)

func computeTypes() map[string]Type {
	return map[string]Type{
		"AWS::EC2::LaunchTemplate": {
			NameProperty:  "LaunchTemplateName",
			MaxNameLength: 128,
			Create: func(ctx context.Context, req *Request) error {
				in := template.Object{
					"LaunchTemplateName": req.physicalName(), "LaunchTemplateData": req.Properties["LaunchTemplateData"],
					"TagSpecifications": withStackTags(
						template.ListAt(req.Properties["TagSpecifications"]),
						req.StackTags,
						"launch-template",
					),
				}
				if d := req.stringProperty("VersionDescription"); d != "" {
					in["VersionDescription"] = d
				}

				out, err := req.callOperation(ctx, "ec2", "CreateLaunchTemplate", in)
				if err != nil {
					return err
				}

				return req.setPhysicalID(ctx, template.ValueAt(out, "LaunchTemplate", "LaunchTemplateId"))
			},
			Stabilize: readTemplateVersions,
			Update:    updateLaunchTemplate,
			Delete:    deleteEC2("DeleteLaunchTemplate", "LaunchTemplateId"),
		},
		"AWS::EC2::Volume": volumeType(),
		"AWS::EC2::VolumeAttachment": {
			Create: func(ctx context.Context, req *Request) error {
				if err := req.runOperation(
					ctx,
					"ec2",
					"AttachVolume",
					req.pickProperties("VolumeId", "InstanceId", "Device"),
				); err != nil {
					return err
				}

				return req.setPhysicalID(
					ctx,
					req.stringProperty("VolumeId")+"|"+req.stringProperty("InstanceId"),
				)
			},
			Delete: func(ctx context.Context, req *Request) error {
				return req.runOperation(ctx,
					"ec2",
					"DetachVolume",
					req.pickProperties("VolumeId", "InstanceId", "Device"),
				)
			},
		},
		"AWS::EC2::Instance": instanceType(),
	}
}

// volumeType is AWS::EC2::Volume.
func volumeType() Type {
	return Type{
		Create: createEC2("CreateVolume", "volume", "VolumeId", func(req *Request) template.Object {
			return req.pickProperties(
				"AvailabilityZone",
				"Encrypted",
				"Iops",
				"KmsKeyId",
				"MultiAttachEnabled",
				"Size",
				"SnapshotId",
				"Throughput",
				"VolumeType",
			)
		}),
		Stabilize: func(ctx context.Context, req *Request) error {
			req.Attributes["VolumeId"] = req.PhysicalID
			return req.waitUntil(ctx, func() (bool, error) {
				v, err := req.describeFirst(ctx, "DescribeVolumes", "VolumeIds", "Volumes")
				state := template.StringAt(v, "State")
				return state == "available" || state == "in-use", err
			})
		},
		Update: func(ctx context.Context, req *Request) error {
			if req.propertyChanged("Size", "Iops", "Throughput", "VolumeType") {
				in := req.pickProperties("Size", "Iops", "Throughput", "VolumeType")
				in["VolumeId"] = req.PhysicalID
				if err := req.waitUntil(ctx, func() (bool, error) {
					err := req.runOperation(ctx, "ec2", "ModifyVolume", in)
					if ErrorCode(err) == "IncorrectModificationState" { // of an earlier modification
						return false, nil
					}

					return true, err
				}); err != nil {
					return err
				}
			}

			return updateEC2Tags(ctx, req)
		},
		Delete: deleteEC2("DeleteVolume", "VolumeId"),
		IsDeleted: func(ctx context.Context, req *Request) (bool, error) {
			v, err := req.describeFirst(ctx, "DescribeVolumes", "VolumeIds", "Volumes")
			return v == nil, err
		},
		ReplacementProperties: []string{"AvailabilityZone", "Encrypted", "KmsKeyId", "SnapshotId"},
	}
}

// withStackTags returns tag specifications with the stack's tags added.
func withStackTags(specs []any, tags map[string]string, kind string) []any {
	var own any
	for _, s := range specs {
		if template.StringAt(s, "ResourceType") == kind {
			own = template.ValueAt(s, "Tags")
		}
	}

	list := tagObjects(mergeTags(tags, own))
	if len(list) == 0 {
		return []any{}
	}

	return []any{template.Object{"ResourceType": kind, "Tags": list}}
}

func readTemplateVersions(ctx context.Context, req *Request) error {
	t, err := req.describeFirst(ctx, "DescribeLaunchTemplates", "LaunchTemplateIds", "LaunchTemplates")
	if err != nil {
		return err
	}

	for _, name := range []string{"LatestVersionNumber", "DefaultVersionNumber", "LaunchTemplateId"} {
		req.Attributes[name] = template.StringAt(t, name)
	}

	return nil
}

// updateLaunchTemplate creates a new version. Resources that refer to LatestVersionNumber then change too.
func updateLaunchTemplate(ctx context.Context, req *Request) error {
	if req.propertyChanged("LaunchTemplateData", "VersionDescription") {
		in := template.Object{
			"LaunchTemplateId":   req.PhysicalID,
			"LaunchTemplateData": req.Properties["LaunchTemplateData"],
		}
		if d := req.stringProperty("VersionDescription"); d != "" {
			in["VersionDescription"] = d
		}

		if err := req.runOperation(ctx, "ec2", "CreateLaunchTemplateVersion", in); err != nil {
			return err
		}
	}

	before := withStackTags(
		template.ListAt(req.OldProperties["TagSpecifications"]),
		req.OldStackTags,
		"launch-template",
	)
	after := withStackTags(
		template.ListAt(req.Properties["TagSpecifications"]),
		req.StackTags,
		"launch-template",
	)
	own := *req
	own.StackTags = nil
	own.OldStackTags = nil
	own.Properties = template.Object{"Tags": template.ValueAt(after, 0, "Tags")}
	own.OldProperties = template.Object{"Tags": template.ValueAt(before, 0, "Tags")}
	if err := own.updateEC2TagsOf(ctx, req.PhysicalID); err != nil {
		return err
	}

	return readTemplateVersions(ctx, req)
}

// instanceType is AWS::EC2::Instance.
func instanceType() Type {
	return Type{
		Create:    createInstance,
		Stabilize: stabilizeInstance,
		Update:    updateEC2Tags,
		Delete: func(ctx context.Context, req *Request) error {
			return req.runOperation(ctx, "ec2", "TerminateInstances", template.Object{
				"InstanceIds": []any{req.PhysicalID},
			})
		},
		IsDeleted:       isInstanceDeleted,
		extraAttributes: []string{"AvailabilityZone"},
		ReplacementProperties: []string{
			"InstanceType",
			"IamInstanceProfile",
			"SecurityGroupIds",
			"UserData",
			"EbsOptimized",
			"MetadataOptions",
			"DisableApiTermination",
		},
	}
}

func describeInstance(ctx context.Context, req *Request) (any, error) {
	out, err := req.callOperation(ctx, "ec2", "DescribeInstances", template.Object{
		"InstanceIds": []any{req.PhysicalID},
	})
	return template.ValueAt(out, "Reservations", 0, "Instances", 0), err
}

func createInstance(ctx context.Context, req *Request) error {
	in := req.pickProperties(
		"BlockDeviceMappings",
		"EbsOptimized",
		"ImageId",
		"InstanceType",
		"KeyName",
		"SecurityGroupIds",
		"SubnetId",
		"UserData",
		"PrivateIpAddress",
		"DisableApiTermination",
		"MetadataOptions",
	)

	in["MinCount"] = 1
	in["MaxCount"] = 1
	in["TagSpecifications"] = req.tagSpecifications("instance")
	if p := req.stringProperty("IamInstanceProfile"); p != "" {
		in["IamInstanceProfile"] = template.Object{"Name": p}
	}

	if t, ok := req.Properties["LaunchTemplate"]; ok {
		in["LaunchTemplate"] = t
	}

	out, err := req.callOperation(ctx, "ec2", "RunInstances", in)
	if err != nil {
		return err
	}

	return req.setPhysicalID(ctx, template.ValueAt(out, "Instances", 0, "InstanceId"))
}

func stabilizeInstance(ctx context.Context, req *Request) error {
	return req.waitUntil(ctx, func() (bool, error) {
		i, err := describeInstance(ctx, req)
		for attribute, member := range map[string]string{
			"PrivateIp": "PrivateIpAddress", "PublicIp": "PublicIpAddress", "PrivateDnsName": "PrivateDnsName", "PublicDnsName": "PublicDnsName",
		} {
			req.Attributes[attribute] = template.StringAt(i, member)
		}

		req.Attributes["InstanceId"] = req.PhysicalID
		req.Attributes["VpcId"] = template.ValueAt(i, "VpcId")
		req.Attributes["AvailabilityZone"] = template.ValueAt(i, "Placement", "AvailabilityZone")

		return template.StringAt(i, "State", "Name") == "running", err
	})
}

func isInstanceDeleted(ctx context.Context, req *Request) (bool, error) {
	i, err := describeInstance(ctx, req)
	name := template.StringAt(i, "State", "Name")
	return name == "" || name == "terminated", err
}

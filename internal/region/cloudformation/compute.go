// SPDX-License-Identifier: Apache-2.0

package cloudformation

import "github.com/slipway-k8s/slipway/internal/region/cloudformation/template"

func computeTypes() map[string]resourceType {
	return map[string]resourceType{
		"AWS::EC2::LaunchTemplate": {
			nameProperty:  "LaunchTemplateName",
			maxNameLength: 128,
			create: func(j *handlerRequest) error {
				in := template.Object{
					"LaunchTemplateName": j.physicalName(), "LaunchTemplateData": j.props["LaunchTemplateData"],
					"TagSpecifications": withStackTags(
						template.ListAt(j.props["TagSpecifications"]),
						j.stackTags,
						"launch-template",
					),
				}
				if d := j.stringProperty("VersionDescription"); d != "" {
					in["VersionDescription"] = d
				}

				out, err := j.callOperation("ec2", "CreateLaunchTemplate", in)
				if err != nil {
					return err
				}

				return j.setPhysicalID(template.ValueAt(out, "LaunchTemplate", "LaunchTemplateId"))
			},
			stabilize: readTemplateVersions,
			update:    updateLaunchTemplate,
			delete:    deleteEC2("DeleteLaunchTemplate", "LaunchTemplateId"),
		},
		"AWS::EC2::Volume": volumeType(),
		"AWS::EC2::VolumeAttachment": {
			create: func(j *handlerRequest) error {
				if err := j.runOperation("ec2", "AttachVolume", j.pickProperties("VolumeId", "InstanceId", "Device")); err != nil {
					return err
				}

				return j.setPhysicalID(j.stringProperty("VolumeId") + "|" + j.stringProperty("InstanceId"))
			},
			delete: func(j *handlerRequest) error {
				return j.runOperation(
					"ec2",
					"DetachVolume",
					j.pickProperties("VolumeId", "InstanceId", "Device"),
				)
			},
		},
		"AWS::EC2::Instance": instanceType(),
	}
}

// volumeType is a volume of EBS.
func volumeType() resourceType {
	return resourceType{
		create: createEC2("CreateVolume", "volume", "VolumeId", func(j *handlerRequest) template.Object {
			return j.pickProperties(
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
		stabilize: func(j *handlerRequest) error {
			j.attributes["VolumeId"] = j.physicalID
			return j.waitUntil(func() (bool, error) {
				v, err := j.describeFirst("DescribeVolumes", "VolumeIds", "Volumes")
				state := template.StringAt(v, "State")
				return state == "available" || state == "in-use", err
			})
		},
		update: func(j *handlerRequest) error {
			if j.propertyChanged("Size", "Iops", "Throughput", "VolumeType") {
				in := j.pickProperties("Size", "Iops", "Throughput", "VolumeType")
				in["VolumeId"] = j.physicalID
				if err := j.runOperation("ec2", "ModifyVolume", in); err != nil {
					return err
				}
			}

			return updateEC2Tags(j)
		},
		delete: deleteEC2("DeleteVolume", "VolumeId"),
		isDeleted: func(j *handlerRequest) (bool, error) {
			v, err := j.describeFirst("DescribeVolumes", "VolumeIds", "Volumes")
			return v == nil, err
		},
		replacementProperties: []string{"AvailabilityZone", "Encrypted", "KmsKeyId", "SnapshotId"},
	}
}

// withStackTags adds the stack's tags to specifications of tags.
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

func readTemplateVersions(j *handlerRequest) error {
	t, err := j.describeFirst("DescribeLaunchTemplates", "LaunchTemplateIds", "LaunchTemplates")
	if err != nil {
		return err
	}

	for _, name := range []string{"LatestVersionNumber", "DefaultVersionNumber", "LaunchTemplateId"} {
		j.attributes[name] = template.StringAt(t, name)
	}

	return nil
}

// updateLaunchTemplate makes a new version; what refers to the latest one follows.
func updateLaunchTemplate(j *handlerRequest) error {
	if j.propertyChanged("LaunchTemplateData", "VersionDescription") {
		in := template.Object{"LaunchTemplateId": j.physicalID, "LaunchTemplateData": j.props["LaunchTemplateData"]}
		if d := j.stringProperty("VersionDescription"); d != "" {
			in["VersionDescription"] = d
		}

		if err := j.runOperation("ec2", "CreateLaunchTemplateVersion", in); err != nil {
			return err
		}
	}

	before := withStackTags(template.ListAt(j.oldProps["TagSpecifications"]), j.oldStackTags, "launch-template")
	after := withStackTags(template.ListAt(j.props["TagSpecifications"]), j.stackTags, "launch-template")
	own := *j
	own.stackTags = nil
	own.oldStackTags = nil
	own.props, own.oldProps = template.Object{
		"Tags": template.ValueAt(after, 0, "Tags"),
	}, template.Object{
		"Tags": template.ValueAt(before, 0, "Tags"),
	}
	if err := own.updateEC2TagsOf(j.physicalID); err != nil {
		return err
	}

	return readTemplateVersions(j)
}

// instanceType is a single machine.
func instanceType() resourceType {
	state := func(j *handlerRequest) (any, error) {
		out, err := j.callOperation("ec2", "DescribeInstances", template.Object{"InstanceIds": []any{j.physicalID}})
		return template.ValueAt(out, "Reservations", 0, "Instances", 0), err
	}

	return resourceType{
		create: func(j *handlerRequest) error {
			in := j.pickProperties(
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

			in["MinCount"], in["MaxCount"], in["TagSpecifications"] = 1, 1, j.tagSpecifications("instance")
			if p := j.stringProperty("IamInstanceProfile"); p != "" {
				in["IamInstanceProfile"] = template.Object{"Name": p}
			}

			if t, ok := j.props["LaunchTemplate"]; ok {
				in["LaunchTemplate"] = t
			}

			out, err := j.callOperation("ec2", "RunInstances", in)
			if err != nil {
				return err
			}

			return j.setPhysicalID(template.ValueAt(out, "Instances", 0, "InstanceId"))
		},
		stabilize: func(j *handlerRequest) error {
			return j.waitUntil(func() (bool, error) {
				i, err := state(j)
				for attribute, member := range map[string]string{
					"PrivateIp": "PrivateIpAddress", "PublicIp": "PublicIpAddress", "PrivateDnsName": "PrivateDnsName", "PublicDnsName": "PublicDnsName",
				} {
					j.attributes[attribute] = template.StringAt(i, member)
				}

				j.attributes["InstanceId"], j.attributes["VpcId"], j.attributes["AvailabilityZone"] = j.physicalID, template.ValueAt(
					i,
					"VpcId",
				), template.ValueAt(
					i,
					"Placement",
					"AvailabilityZone",
				)

				return template.StringAt(i, "State", "Name") == "running", err
			})
		},
		update: updateEC2Tags,
		delete: func(j *handlerRequest) error {
			return j.runOperation("ec2", "TerminateInstances", template.Object{"InstanceIds": []any{j.physicalID}})
		},
		isDeleted: func(j *handlerRequest) (bool, error) {
			i, err := state(j)
			name := template.StringAt(i, "State", "Name")
			return name == "" || name == "terminated", err
		},
		extraAttributes: []string{"AvailabilityZone"},
		replacementProperties: []string{
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

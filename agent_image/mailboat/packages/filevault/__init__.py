"""The `filevault` package format: zips that Apache Jackrabbit FileVault, and so AEM and Sling, read and write."""
